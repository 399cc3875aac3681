package leasetest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// forgeries returns claims like c that do not match it, by the mismatch.
func forgeries(c lease.Claim) map[lease.StaleError]lease.Claim {
	holder, id, below, above, all := c, c, c, c, c
	holder.Holder += "x"
	id.ID += "x"
	above.Token++
	all.Holder, all.ID, all.Token = "x", "x", c.Token+1
	forged := map[lease.StaleError]lease.Claim{
		{Name: c.Name, Holder: true}:                        holder,
		{Name: c.Name, ID: true}:                            id,
		{Name: c.Name, Token: true}:                         above,
		{Name: c.Name, Holder: true, ID: true, Token: true}: all,
	}
	if below.Token--; below.Token > 0 {
		below.ID += "x"
		forged[lease.StaleError{Name: c.Name, ID: true, Token: true}] = below
	}
	return forged
}

var renewCases = []testCase{
	{"renew: a lease is prolonged, and remains the same", func(s *suite) {
		r := request("job", "a")
		r.Metadata = map[string]string{"host": "a"}
		l := s.acquire(r)
		before := s.get("job").Version
		renewed := s.renew(l.Claim, 2*long)
		require.Equal(s, l.Claim, renewed.Claim)
		require.Equal(s, r.Metadata, renewed.Metadata)
		require.WithinDuration(s, l.AcquiredAt, renewed.AcquiredAt, 0)
		require.True(s, renewed.ExpiresAt.After(l.ExpiresAt))
		require.LessOrEqual(s, renewed.Remaining, 2*long)
		require.Greater(s, renewed.Remaining, 2*long-s.bound())
		require.Greater(s, s.get("job").Version, before)
		requireSameLease(s, renewed, s.get("job").Lease)
	}},
	{"renew: renewals keep a lease beyond its TTL", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		end := l.ExpiresAt.Add(s.h.TTL)
		s.eventually(func() bool {
			renewed, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: s.h.TTL})
			if err != nil {
				require.ErrorIs(s, err, lease.ErrExpired)
				s.Log("this machine was too busy to renew in time: beginning again")
				l = s.acquire(s.brief("job", "a"))
				end = l.ExpiresAt.Add(s.h.TTL)
				return false
			}
			return renewed.ExpiresAt.After(end)
		}, "renewals do not prolong")
	}},
	{"renew: a renewal does not shorten a lease", func(s *suite) {
		l := s.acquire(request("job", "a"))
		renewed := s.renew(l.Claim, lease.MinTTL)
		require.WithinDuration(s, l.ExpiresAt, renewed.ExpiresAt, 0)
		require.Greater(s, renewed.Remaining, long-s.bound())
	}},
	{"renew: a claim that does not match is stale, says where, and changes nothing", func(s *suite) {
		s.release(s.acquire(request("job", "a")).Claim)
		l := s.acquire(request("job", "a"))
		s.unchanged(func() {
			for want, forged := range forgeries(l.Claim) {
				requireStale(s, s.renewError(forged), want)
			}
		})
	}},
	{"renew: an expired lease stays expired, before and after a sweep", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		s.expire("job")
		s.unchanged(func() { requireExpired(s, s.renewError(l.Claim), l) })
		s.sweep(lease.SweepRequest{})
		requireExpired(s, s.renewError(l.Claim), l)
		s.acquire(request("job", "b"))
	}},
	{"renew: a lease that another took over, also one of its own holder's name, is stale", func(s *suite) {
		for _, holder := range []string{"b", "a"} {
			l := s.acquire(s.brief("job", "a"))
			s.expire("job")
			next := s.acquire(request("job", holder))
			s.unchanged(func() {
				requireStale(s, s.renewError(l.Claim), lease.StaleError{Name: "job", Holder: holder == "b", ID: true, Token: true})
			})
			s.release(next.Claim)
		}
	}},
	{"renew: a released lease is stale", func(s *suite) {
		l := s.acquire(request("job", "a"))
		s.release(l.Claim)
		s.unchanged(func() {
			requireStale(s, s.renewError(l.Claim), lease.StaleError{Name: "job", Released: true})
		})
	}},
	{"renew: a name that nothing is known of is not found", func(s *suite) {
		requireNotFound(s, s.renewError(lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 1}), "job")
		require.Empty(s, s.list(lease.ListRequest{}))
	}},
	{"renew: a batch does what each renewal would, in its order", func(s *suite) {
		batch := capability[lease.BatchRenewer](s, s.store)
		none, err := batch.RenewAll(s.Context(), nil)
		require.NoError(s, err)
		require.Empty(s, none)

		first, second, released := s.acquire(request("b", "x")), s.acquire(request("a", "x")), s.acquire(request("c", "x"))
		s.release(released.Claim)
		forged := first.Claim
		forged.Token++
		var all []lease.RenewRequest
		for _, c := range []lease.Claim{first.Claim, forged, {Name: "d", Holder: "x", ID: "x", Token: 1}, {}, released.Claim, second.Claim} {
			all = append(all, lease.RenewRequest{Claim: c, TTL: 2 * long})
		}
		results, err := batch.RenewAll(s.Context(), all)
		require.NoError(s, err)
		require.Len(s, results, len(all))
		for i, l := range map[int]lease.Lease{0: first, 5: second} {
			require.NoError(s, results[i].Err)
			require.Equal(s, l.Claim, results[i].Lease.Claim)
			require.True(s, results[i].Lease.ExpiresAt.After(l.ExpiresAt))
			requireSameLease(s, results[i].Lease, s.get(l.Name).Lease)
		}
		requireStale(s, results[1].Err, lease.StaleError{Name: "b", Token: true})
		requireNotFound(s, results[2].Err, "d")
		require.ErrorIs(s, results[3].Err, lease.ErrInvalid)
		requireStale(s, results[4].Err, lease.StaleError{Name: "c", Released: true})
	}},
	{"renew: a large batch renews each, also one that is in it twice", func(s *suite) {
		batch := capability[lease.BatchRenewer](s, s.store)
		var all []lease.RenewRequest
		for i := range 150 {
			all = append(all, lease.RenewRequest{Claim: s.acquire(request(fmt.Sprintf("job-%03d", i), "a")).Claim, TTL: 2 * long})
		}
		all = append(all, all[0])
		results, err := batch.RenewAll(s.Context(), all)
		require.NoError(s, err)
		require.Len(s, results, len(all))
		for i, r := range results {
			require.NoError(s, r.Err)
			require.Equal(s, all[i].Claim, r.Lease.Claim)
			require.Greater(s, r.Lease.Remaining, long)
		}
		for _, r := range s.list(lease.ListRequest{}) {
			require.Greater(s, r.Remaining, long)
		}
	}},
}

var releaseCases = []testCase{
	{"release: the name is free at once, and its past is known", func(s *suite) {
		l := s.acquire(request("job", "a"))
		before := s.get("job").Version
		s.release(l.Claim)
		record := s.get("job")
		require.Equal(s, lease.Free, record.State)
		require.Greater(s, record.Version, before)
		require.Equal(s, l.Claim, record.Claim)
		require.Zero(s, record.Remaining)
		require.Zero(s, record.AvailableIn)
		require.Greater(s, s.acquire(request("job", "b")).Token, l.Token)
	}},
	{"release: releasing once more is no error and changes nothing", func(s *suite) {
		l := s.releasedInTime(s.brief("job", "a"))
		s.unchanged(func() { s.release(l.Claim) })
		s.sweep(lease.SweepRequest{})
		s.eventually(func() bool { // even after its time would have been over
			s.release(l.Claim)
			probe, err := s.store.Acquire(s.Context(), s.brief("clock", "a"))
			return err == nil && probe.AcquiredAt.After(l.ExpiresAt)
		}, "time stands still")
	}},
	{"release: a claim that does not match is stale, says where, and changes nothing", func(s *suite) {
		s.release(s.acquire(request("job", "a")).Claim)
		l := s.acquire(request("job", "a"))
		for _, end := range []func(){func() {}, func() { s.release(l.Claim) }} {
			end()
			s.unchanged(func() {
				for want, forged := range forgeries(l.Claim) {
					requireStale(s, s.store.Release(s.Context(), forged), want)
				}
			})
		}
	}},
	{"release: a stale holder cannot release its successor's lease", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		s.expire("job")
		s.unchanged(func() { requireExpired(s, s.store.Release(s.Context(), l.Claim), l) })
		s.sweep(lease.SweepRequest{})
		requireExpired(s, s.store.Release(s.Context(), l.Claim), l)
		s.acquire(request("job", "a"))
		s.unchanged(func() {
			requireStale(s, s.store.Release(s.Context(), l.Claim), lease.StaleError{Name: "job", ID: true, Token: true})
		})
		s.refused(request("job", "b"))
	}},
	{"release: what was released, and taken by another, is stale", func(s *suite) {
		l := s.acquire(request("job", "a"))
		s.release(l.Claim)
		s.acquire(request("job", "b"))
		s.unchanged(func() {
			requireStale(s, s.store.Release(s.Context(), l.Claim), lease.StaleError{Name: "job", Holder: true, ID: true, Token: true})
		})
	}},
	{"release: a name that nothing is known of is not found", func(s *suite) {
		requireNotFound(s, s.store.Release(s.Context(), lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 1}), "job")
	}},
}
