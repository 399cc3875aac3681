package leasetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

var sweepCases = []testCase{
	{"sweep: it counts what is held, and each expired lease once", func(s *suite) {
		s.acquire(request("held", "a"))
		s.release(s.acquire(request("released", "a")).Claim)
		s.acquire(s.brief("expired", "a"))
		s.acquire(s.brief("taken over", "a"))
		s.expire("expired")
		s.expire("taken over")
		s.acquire(request("taken over", "b"))
		require.Equal(s, lease.SweepResult{Held: 2, Expired: 2}, s.sweep(lease.SweepRequest{}))
		require.Equal(s, lease.SweepResult{Held: 2}, s.sweep(lease.SweepRequest{}))
		s.acquire(s.brief("expired", "b"))
		s.expire("expired")
		require.Equal(s, lease.SweepResult{Held: 2, Expired: 1}, s.sweep(lease.SweepRequest{}))
	}},
	{"sweep: a name is forgotten when its lease ended longer ago than the retention", func(s *suite) {
		s.acquire(request("held", "a"))
		s.release(s.acquire(request("released", "a")).Claim)
		l := s.acquire(s.brief("expired", "a"))
		s.expire("expired")
		require.Zero(s, s.sweep(lease.SweepRequest{}).Removed, "an hour by default")
		require.Zero(s, s.sweep(lease.SweepRequest{Retention: long}).Removed)
		require.Len(s, s.list(lease.ListRequest{}), 3)
		s.forget(2)
		require.Equal(s, []string{"held"}, names(s.list(lease.ListRequest{})))
		_, err := s.store.Get(s.Context(), "released")
		requireNotFound(s, err, "released")
		requireNotFound(s, s.renewError(l.Claim), "expired")
		requireNotFound(s, s.store.Release(s.Context(), l.Claim), "expired")
	}},
	{"sweep: what is forgotten when it is found expired is counted", func(s *suite) {
		s.acquire(s.brief("job", "a"))
		s.expire("job")
		var total lease.SweepResult
		s.eventually(func() bool {
			result := s.sweep(lease.SweepRequest{Retention: time.Nanosecond})
			total.Expired += result.Expired
			total.Removed += result.Removed
			return total.Removed > 0
		}, "the name is never forgotten")
		require.Equal(s, lease.SweepResult{Expired: 1, Removed: 1}, total)
	}},
	{"sweep: a limit holds, and sweeps go on as long as there is more", func(s *suite) {
		require.Zero(s, s.sweep(lease.SweepRequest{}), "an empty store")
		for n, limit := range map[int]int{7: 3, 150: 0} {
			for i := range n {
				s.release(s.acquire(request(fmt.Sprintf("job-%d", i), "a")).Claim)
			}
			removed := 0
			s.eventually(func() bool {
				for more := true; more; {
					result := s.sweep(lease.SweepRequest{Retention: time.Nanosecond, Limit: limit})
					require.True(s, limit == 0 || result.Removed < limit || result.Removed == limit && result.More, "a sweep that its limit stopped says so")
					removed += result.Removed
					more = result.More
				}
				return removed == n
			}, "sweeps do not get on")
			require.Empty(s, s.list(lease.ListRequest{}))
		}
	}},
}

var tokenCases = []testCase{
	{"tokens and versions rise over releases, expiries, sweeps that forget, and restarts", func(s *suite) {
		others := []string{"x", "y"}
		last, version := uint64(0), uint64(0)
		rise := func(how string, r lease.AcquireRequest) lease.Lease {
			s.Helper()
			l := s.acquire(r)
			require.Greater(s, l.Token, last, "after %s", how)
			record := s.get("job")
			require.Greater(s, record.Version, version, "after %s", how)
			last, version = l.Token, record.Version
			return l
		}
		end := func(l lease.Lease) { // the last change of the name
			s.Helper()
			s.release(s.renew(l.Claim, 2*long).Claim)
			version = s.get("job").Version
		}
		kept, brief := request("job", "a"), s.brief("job", "a")
		end(rise("nothing", kept))
		end(rise("a release", kept))
		rise("a release", brief)
		s.expire("job")
		rise("an expiry", brief)
		s.expire("job")
		s.sweep(lease.SweepRequest{})
		end(rise("a sweep that cleared it", kept))
		for range 3 {
			s.forget(1)
			for _, other := range others { // the floor is for all names
				s.release(s.acquire(request(other, "a")).Claim)
				s.forget(1)
			}
			end(rise("a sweep that forgot it", kept))
		}
		rise("a sweep that forgot it", brief)
		s.expire("job")
		s.forget(1)
		if s.h.Reopen == nil {
			return
		}
		rise("an expiry that was forgotten", brief)
		s.store = s.h.Reopen(s.T, s.store)
		s.expire("job")
		end(rise("a restart", kept))
		s.forget(1)
		s.store = s.h.Reopen(s.T, s.store)
		rise("a sweep that forgot it, and a restart", brief)
	}},
	{"reopen: everything that was acknowledged is still there", func(s *suite) {
		if s.h.Reopen == nil {
			s.Skip("the store is not durable")
		}
		r := request("held", "a")
		r.Metadata, r.IdempotencyKey = map[string]string{"host": "ä"}, "attempt-1"
		held := s.renew(s.acquire(r).Claim, 2*long)
		s.labelled(s.acquire(request("labelled", "a")).Claim, r.Metadata)
		released := s.acquire(request("released", "a"))
		s.release(released.Claim)
		delayed := s.brief("delayed", "a")
		delayed.LockDelay = long
		s.acquire(delayed)
		kept := request("kept", "a")
		kept.MinHold = long
		s.release(s.acquire(kept).Claim)
		limited := request("limited", "a")
		limited.MaxLifetime = lease.MaxTTL
		bounded := s.renew(s.acquire(limited).Claim, long)
		s.expire("delayed")
		before := s.list(lease.ListRequest{})

		s.store = s.h.Reopen(s.T, s.store)
		after := s.list(lease.ListRequest{})
		require.Equal(s, names(before), names(after))
		for i := range before {
			requireSame(s, before[i], after[i])
			require.Equal(s, before[i].State, after[i].State, "%s", before[i].Name)
		}
		requireSameLease(s, held, s.acquire(r))
		s.refused(request("held", "b"))
		s.release(released.Claim)
		require.Empty(s, s.refused(request("delayed", "b")).Holder)
		require.Empty(s, s.refused(request("kept", "b")).Holder)
		require.False(s, s.renew(bounded.Claim, lease.MaxTTL).ExpiresAt.After(bounded.AcquiredAt.Add(lease.MaxTTL).Add(s.h.Precision)))
		s.release(held.Claim)
		require.Greater(s, s.acquire(request("held", "b")).Token, held.Token)
	}},
}
