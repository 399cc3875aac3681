package leaseserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A TTLPolicy bounds the TTLs of acquires and renewals on locks whose names begin with Prefix. If
// several policies match, only the one with the longest prefix counts. A TTL outside the bounds is
// refused, not shortened, because a holder trusts the TTL that it asked for.
type TTLPolicy struct {
	Prefix  string        // "" = all names that match no other policy
	Min     time.Duration // 0 = lease.MinTTL
	Max     time.Duration // 0 = lease.MaxTTL
	Default time.Duration // for requests without a TTL, Min to Max; 0 = they are refused
}

// SetTTLPolicies replaces Config.TTLPolicies, from the next request on. An empty slice removes
// all policies. Current leases stay unchanged, but can be renewed only as the policies allow.
// If it returns an error, nothing changes.
func (s *Server) SetTTLPolicies(policies []TTLPolicy) error {
	sorted, err := checkTTLPolicies(policies)
	if err != nil {
		return err
	}
	s.ttlPolicies.Store(&sorted)
	return nil
}

// checkTTLPolicies returns the policies with their defaults, the longest prefix first.
func checkTTLPolicies(policies []TTLPolicy) ([]TTLPolicy, error) {
	sorted := slices.Clone(policies)
	for i := range sorted {
		p := &sorted[i]
		p.Min, p.Max = cmp.Or(p.Min, lease.MinTTL), cmp.Or(p.Max, lease.MaxTTL)
		switch {
		case slices.ContainsFunc(policies[:i], func(other TTLPolicy) bool { return other.Prefix == p.Prefix }):
			return nil, fmt.Errorf("leaseserver: TTLPolicies[%d] is for the prefix %q again: give it one policy", i, p.Prefix)
		case p.Min < lease.MinTTL, p.Max > lease.MaxTTL, p.Min > p.Max:
			return nil, fmt.Errorf("leaseserver: TTLPolicies[%d] is from %v to %v: stay in %v to %v, and Min below Max", i, p.Min, p.Max, lease.MinTTL, lease.MaxTTL)
		case p.Default != 0 && (p.Default < p.Min || p.Default > p.Max):
			return nil, fmt.Errorf("leaseserver: TTLPolicies[%d] has the default %v: use %v to %v", i, p.Default, p.Min, p.Max)
		}
	}
	slices.SortStableFunc(sorted, func(a, b TTLPolicy) int { return len(b.Prefix) - len(a.Prefix) })
	return sorted, nil
}

// ttl returns the TTL of a lease on a lock, for the requested ttl; 0 = none was requested. It
// returns *lease.InvalidError if no policy allows the TTL. The bounds of all leases are checked by
// the request's own Validate.
func (s *Server) ttl(name string, ttl time.Duration) (time.Duration, error) {
	policies := *s.ttlPolicies.Load()
	at := slices.IndexFunc(policies, func(p TTLPolicy) bool { return strings.HasPrefix(name, p.Prefix) })
	if at < 0 {
		return ttl, nil
	}
	p := policies[at]
	if ttl = cmp.Or(ttl, p.Default); ttl < p.Min || ttl > p.Max {
		value := ttl.String()
		if ttl == 0 {
			value = "missing or 0"
		}
		return 0, &lease.InvalidError{
			Field: "TTL", Value: value, Remedy: fmt.Sprintf("use %v to %v, which is the policy for names that begin with %q", p.Min, p.Max, p.Prefix),
		}
	}
	return ttl, nil
}
