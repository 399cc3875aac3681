package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// adoptError checks that a lease cannot be adopted, and returns why.
func (s *suite) adoptError(c lease.Claim) error {
	s.Helper()
	l, err := lease.Adopt(s.Context(), s.store, c.Name, c.Holder, c.ID)
	require.Error(s, err)
	require.Zero(s, l)
	return err
}

var adoptCases = []testCase{
	{"adopt: holder and id get the lease again, as it is", func(s *suite) {
		r := request("job", "a")
		r.Metadata = map[string]string{"host": "a"}
		l := s.acquire(r)
		s.unchanged(func() {
			adopted, err := lease.Adopt(s.Context(), s.store, "job", "a", l.ID)
			require.NoError(s, err)
			requireSameLease(s, l, adopted)
			require.Positive(s, adopted.Remaining)
			require.LessOrEqual(s, adopted.Remaining, l.Remaining+s.h.Precision)
		})
		s.release(s.renew(l.Claim, 2*long).Claim)
	}},
	{"adopt: another holder or id is stale, says where, and changes nothing", func(s *suite) {
		l := s.acquire(request("job", "a"))
		holder, id := l.Claim, l.Claim
		holder.Holder, id.ID = "b", "x"
		s.unchanged(func() {
			requireStale(s, s.adoptError(holder), lease.StaleError{Name: "job", Holder: true})
			requireStale(s, s.adoptError(id), lease.StaleError{Name: "job", ID: true})
			holder.ID = "x"
			requireStale(s, s.adoptError(holder), lease.StaleError{Name: "job", Holder: true, ID: true})
			id.ID = ""
			requireInvalid(s, s.adoptError(id), "ID")
		})
	}},
	{"adopt: what has ended cannot be adopted, and says how it ended", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		s.expire("job")
		s.unchanged(func() { requireExpired(s, s.adoptError(l.Claim), l) })
		s.sweep(lease.SweepRequest{})
		s.unchanged(func() { requireExpired(s, s.adoptError(l.Claim), l) })
		next := s.acquire(request("job", "a"))
		s.unchanged(func() { requireStale(s, s.adoptError(l.Claim), lease.StaleError{Name: "job", ID: true}) })
		s.release(next.Claim)
		s.unchanged(func() { requireStale(s, s.adoptError(next.Claim), lease.StaleError{Name: "job", Released: true}) })
		requireNotFound(s, s.adoptError(lease.Claim{Name: "other", Holder: "a", ID: "x"}), "other")
	}},
}
