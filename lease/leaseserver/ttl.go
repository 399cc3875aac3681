package leaseserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A TTLPolicy says for how long leases can be asked for, and renewed, on the locks whose names
// begin with Prefix. Of several policies that of the longest prefix counts, alone. What is
// outside is refused, not cut: a holder trusts the TTL that it asked for.
type TTLPolicy struct {
	Prefix  string        // "" = all names that no other policy is for
	Min     time.Duration // 0 = lease.MinTTL
	Max     time.Duration // 0 = lease.MaxTTL
	Default time.Duration // for requests without a TTL, Min to Max; 0 = they are refused
}

// SetTTLPolicies lets other policies take the place of those of Config.TTLPolicies, from the next
// request on; none is a way to have none. Leases that are held stay as they are, and can be
// renewed only as the policies say. On an error nothing changes.
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

// ttl is for how long a lease on a lock is to last for which ttl was asked: 0 = nothing was said.
// *lease.InvalidError if no policy allows that; the bounds of all leases are the request's own
// Validate to check.
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
