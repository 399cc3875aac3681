package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// labelled renews a lease with metadata.
func (s *suite) labelled(c lease.Claim, metadata map[string]string) lease.Lease {
	s.Helper()
	l, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: c, TTL: long, Metadata: metadata})
	require.NoError(s, err)
	return l
}

var metadataCases = []testCase{
	{"metadata: a renewal changes it, empties it, or leaves it as it is, for all who look", func(s *suite) {
		r := request("job", "a")
		r.Metadata = map[string]string{"host": "a", "part": "1"}
		c := s.acquire(r).Claim
		for _, step := range []struct{ given, want map[string]string }{
			{nil, r.Metadata},
			{map[string]string{"part": "två ✓", "empty": ""}, map[string]string{"part": "två ✓", "empty": ""}},
			{nil, map[string]string{"part": "två ✓", "empty": ""}},
			{map[string]string{}, nil},
			{nil, nil},
			{map[string]string{"part": "3"}, map[string]string{"part": "3"}},
		} {
			l := s.labelled(c, step.given)
			want := lease.Lease{Claim: c, AcquiredAt: l.AcquiredAt, ExpiresAt: l.ExpiresAt, Metadata: step.want}
			requireSameLease(s, want, l)
			requireSameLease(s, want, s.get("job").Lease)
			requireSameLease(s, want, s.list(lease.ListRequest{})[0].Lease)
		}
	}},
	{"metadata: what the caller does to it later changes nothing", func(s *suite) {
		r := request("job", "a")
		r.Metadata = map[string]string{"host": "a"}
		l := s.acquire(r)
		r.Metadata["host"], l.Metadata["host"] = "b", "c"
		require.Equal(s, map[string]string{"host": "a"}, s.get("job").Metadata)
		mine := map[string]string{"host": "b"}
		l = s.labelled(l.Claim, mine)
		mine["host"], l.Metadata["host"] = "c", "d"
		require.Equal(s, map[string]string{"host": "b"}, s.get("job").Metadata)
	}},
	{"metadata: a renewal that is refused changes nothing of it", func(s *suite) {
		r := s.brief("job", "a")
		r.Metadata = map[string]string{"host": "a"}
		l := s.acquire(r)
		refused := func(c lease.Claim) {
			s.Helper()
			_, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: c, TTL: long, Metadata: map[string]string{"host": "b"}})
			require.Error(s, err)
			require.Equal(s, r.Metadata, s.get("job").Metadata)
		}
		for _, forged := range forgeries(l.Claim) {
			refused(forged)
		}
		s.expire("job")
		refused(l.Claim)
		r.TTL = long
		l = s.acquire(r)
		s.release(l.Claim)
		refused(l.Claim)
	}},
	{"metadata: a batch changes that of each lease", func(s *suite) {
		batch := capability[lease.BatchRenewer](s, s.store)
		var all []lease.RenewRequest
		for _, metadata := range []map[string]string{nil, {"host": "b"}, {}} {
			r := request(string(rune('a'+len(all))), "x")
			r.Metadata = map[string]string{"host": "a"}
			all = append(all, lease.RenewRequest{Claim: s.acquire(r).Claim, TTL: long, Metadata: metadata})
		}
		results, err := batch.RenewAll(s.Context(), all)
		require.NoError(s, err)
		for i, want := range []map[string]string{{"host": "a"}, {"host": "b"}, nil} {
			require.NoError(s, results[i].Err)
			require.Len(s, results[i].Lease.Metadata, len(want))
			require.Equal(s, want["host"], results[i].Lease.Metadata["host"])
			requireSameLease(s, results[i].Lease, s.get(all[i].Name).Lease)
		}
	}},
}
