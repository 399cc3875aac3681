package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// handOver hands a name over, or skips the case if the store cannot.
func (s *suite) handOver(c lease.Claim, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	s.Helper()
	return s.handOverKeyed(lease.ReleaseRequest{Claim: c}, next)
}

func (s *suite) handOverKeyed(r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	s.Helper()
	return capability[lease.HandOverer](s, s.store).HandOver(s.Context(), r, next)
}

var handOverCases = []testCase{
	{"hand-over: the next one has the name, and the one before has it no more", func(s *suite) {
		first := s.acquire(request("job", "a"))
		next := request("job", "b")
		next.Metadata = map[string]string{"host": "b"}
		second, released, acquired := s.handOver(first.Claim, next)
		require.NoError(s, released)
		require.NoError(s, acquired)
		require.Equal(s, "b", second.Holder)
		require.Greater(s, second.Token, first.Token)
		require.NotEqual(s, first.ID, second.ID)
		require.Equal(s, next.Metadata, second.Metadata)
		record := s.get("job")
		require.Equal(s, lease.Held, record.State)
		requireSameLease(s, second, record.Lease)
		requireStale(s, s.renewError(first.Claim), lease.StaleError{Name: "job", Holder: true, ID: true, Token: true})
		s.release(second.Claim)
	}},
	{"hand-over: a claim that is stale takes nothing from the one that has the name", func(s *suite) {
		l := s.acquire(request("job", "a"))
		s.unchanged(func() {
			for want, forged := range forgeries(l.Claim) {
				none, released, acquired := s.handOver(forged, request("job", "b"))
				requireStale(s, released, want)
				require.ErrorIs(s, acquired, lease.ErrHeld)
				require.Zero(s, none)
			}
		})
	}},
	{"hand-over: a lease that expired is not released, and the name granted", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		s.expire("job")
		next, released, acquired := s.handOver(l.Claim, request("job", "b"))
		requireExpired(s, released, l)
		require.NoError(s, acquired)
		require.Greater(s, next.Token, l.Token)
	}},
	{"hand-over: MinHold keeps the name from the next one", func(s *suite) {
		r := request("job", "a")
		r.MinHold = long
		none, released, acquired := s.handOver(s.acquire(r).Claim, request("job", "b"))
		require.NoError(s, released)
		var held *lease.HeldError
		require.ErrorAs(s, acquired, &held)
		require.Empty(s, held.Holder)
		require.Zero(s, none)
		require.Equal(s, lease.Free, s.get("job").State)
	}},
	{"hand-over: sent again, it changes nothing, and its idempotency key finds the lease", func(s *suite) {
		first := s.acquire(request("job", "a"))
		next := request("job", "b")
		next.IdempotencyKey = "once"
		second, released, acquired := s.handOver(first.Claim, next)
		require.NoError(s, released)
		require.NoError(s, acquired)
		s.unchanged(func() {
			again, released, acquired := s.handOver(first.Claim, next)
			require.ErrorIs(s, released, lease.ErrStale)
			require.NoError(s, acquired)
			requireSameLease(s, second, again)
		})
	}},
	{"hand-over: what is invalid in one half leaves the other", func(s *suite) {
		l, released, acquired := s.handOver(lease.Claim{}, request("job", "a"))
		require.ErrorIs(s, released, lease.ErrInvalid)
		require.NoError(s, acquired)
		none, released, acquired := s.handOver(l.Claim, lease.AcquireRequest{})
		require.NoError(s, released)
		require.ErrorIs(s, acquired, lease.ErrInvalid)
		require.Zero(s, none)
		require.Equal(s, lease.Free, s.get("job").State)
	}},
}
