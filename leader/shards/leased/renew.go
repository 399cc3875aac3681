package leased

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader/internal/leaseerr"
	"github.com/pglatch/pglatch/lease"
)

// Renew renews the member's lease and those of all shards, in one operation of a store that
// can. A shard whose lease has ended is lost; when the member's has, the session is.
func (s *session) Renew(ctx context.Context, ttl time.Duration) (lost []string, err error) {
	s.mu.Lock()
	if s.over != nil {
		defer s.mu.Unlock()
		return nil, s.failed("renewing", s.over)
	}
	s.ttl = wholeMilliseconds(ttl)
	s.renewals++
	number := s.renewals
	all := make([]lease.Claim, 0, 1+len(s.held))
	all = append(all, s.member)
	names := make([]string, 0, len(s.held))
	for name, h := range s.held {
		all, names = append(all, h.Claim), append(names, name)
	}
	s.mu.Unlock()
	s.renewing.Add(1)
	gone, err := s.prolong(ctx, all)
	s.renewing.Add(-1)
	if gone[s.member.Name] {
		return nil, s.failed("renewing", s.end(errEnded))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		claim := all[1+i]
		h, ok := s.held[name]
		switch {
		case !gone[claim.Name] || !ok || h.Claim != claim: // it lasts, or was released meanwhile
		case h.granted == unreturned: // its Claim leaves it out
			delete(s.held, name)
		case h.granted+1 >= number: // the caller may not know yet that it is owned: the next renewal says that it is lost
			err = cmp.Or(err, errEndedSoon)
		default:
			delete(s.held, name)
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		s.changes++ // the next Look lets others see it
	}
	if err != nil {
		err = s.failed("renewing", err)
	}
	return lost, err
}

var errEndedSoon = errors.New("the lease of a shard has ended as soon as it was claimed")

// prolong renews leases until all last for the ttl, or the store fails. gone are those that have
// ended, by their names, also beside an error.
func (s *session) prolong(ctx context.Context, all []lease.Claim) (gone map[string]bool, err error) {
	s.mu.Lock()
	ttl := s.ttl
	s.mu.Unlock()
	requests := make([]lease.RenewRequest, len(all))
	for i, claim := range all {
		requests[i] = lease.RenewRequest{Claim: claim, TTL: ttl}
	}
	gone = map[string]bool{}
	return gone, again(ctx, func() error {
		results, err := s.renewAll(ctx, requests)
		if err != nil {
			return err
		}
		var left []lease.RenewRequest // the store was busy with them
		var busy, failed error
		for i, result := range results {
			switch err := result.Err; {
			case leaseerr.Over(err):
				gone[requests[i].Name] = true
			case errors.Is(err, lease.ErrBusy):
				left, busy = append(left, requests[i]), err
			case err != nil:
				failed = err
			default:
				failed = cmp.Or(failed, enough(result.Lease, ttl))
			}
		}
		requests = left
		if failed != nil {
			return failed
		}
		return busy
	})
}

// renewAll renews as many leases together as the store can.
func (s *session) renewAll(ctx context.Context, requests []lease.RenewRequest) ([]lease.RenewResult, error) {
	if batch, ok := s.store.(lease.BatchRenewer); ok {
		return batch.RenewAll(ctx, requests)
	}
	results := make([]lease.RenewResult, len(requests))
	places := make(chan struct{}, together)
	var wg sync.WaitGroup
	for i := range requests {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			results[i].Lease, results[i].Err = s.store.Renew(ctx, requests[i])
		})
	}
	wg.Wait()
	return results, nil
}
