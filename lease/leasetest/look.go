package leasetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

func names(records []lease.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, r.Name)
	}
	return all
}

var lookCases = []testCase{
	{"get: a name that nothing is known of is not found", func(s *suite) {
		_, err := s.store.Get(s.Context(), "job")
		requireNotFound(s, err, "job")
	}},
	{"get: a name is HELD, then EXPIRED, after a sweep FREE", func(s *suite) {
		l := s.acquire(s.brief("job", "a"))
		held := s.get("job")
		if held.State == lease.Held { // else this machine was paused
			require.Positive(s, held.Remaining)
			require.LessOrEqual(s, held.Remaining, s.h.TTL)
			require.LessOrEqual(s, held.AvailableIn, s.h.TTL)
		}
		expired := s.expire("job")
		require.Equal(s, lease.Expired, expired.State)
		require.Zero(s, expired.Remaining)
		require.Zero(s, expired.AvailableIn)
		requireSameLease(s, l, expired.Lease)
		s.sweep(lease.SweepRequest{})
		free := s.get("job")
		require.Equal(s, lease.Free, free.State)
		require.Greater(s, free.Version, expired.Version)
		requireSameLease(s, l, free.Lease)
	}},
	{"list: names come in the order of their bytes, in pages", func(s *suite) {
		all := []string{"A", "B", "a", "a b", "a%", "a/1", "a/10", "a/2", "a_", "aa", "b", "é", "\uFFFD", "\U0001F600"}
		for i := range all {
			s.acquire(request(all[(i*5)%len(all)], "x"))
		}
		require.Equal(s, all, names(s.list(lease.ListRequest{})))
		require.Equal(s, all[:3], names(s.list(lease.ListRequest{Limit: 3})))
		require.Equal(s, all[4:], names(s.list(lease.ListRequest{After: "a b"})), "after is not included")
		require.Equal(s, all[2:], names(s.list(lease.ListRequest{After: "C"})), "after need not exist")
		require.Empty(s, s.list(lease.ListRequest{After: all[len(all)-1]}))
		require.Equal(s, all[2:10], names(s.list(lease.ListRequest{Prefix: "a"})))
		require.Equal(s, []string{"a%"}, names(s.list(lease.ListRequest{Prefix: "a%"})))
		require.Equal(s, []string{"a_"}, names(s.list(lease.ListRequest{Prefix: "a_"})))
		require.Equal(s, []string{"\uFFFD"}, names(s.list(lease.ListRequest{Prefix: "\uFFFD"})))
		require.Equal(s, []string{"\U0001F600"}, names(s.list(lease.ListRequest{Prefix: "\U0001F600"})))
		require.Empty(s, s.list(lease.ListRequest{Prefix: "no"}))
		require.Equal(s, []string{"a/10"}, names(s.list(lease.ListRequest{Prefix: "a/", After: "a/1", Limit: 1})))
		var paged []string
		for page := s.list(lease.ListRequest{Limit: 4}); len(page) > 0; page = s.list(lease.ListRequest{After: paged[len(paged)-1], Limit: 4}) {
			require.LessOrEqual(s, len(page), 4)
			paged = append(paged, names(page)...)
		}
		require.Equal(s, all, paged)
	}},
	{"list: records are those of get", func(s *suite) {
		r := request("held", "a")
		r.Metadata = map[string]string{"host": "a"}
		s.acquire(r)
		s.release(s.acquire(request("released", "a")).Claim)
		s.acquire(s.brief("expired", "a"))
		s.expire("expired")
		records := s.list(lease.ListRequest{})
		require.Equal(s, []string{"expired", "held", "released"}, names(records))
		for _, record := range records {
			got := s.get(record.Name)
			requireSame(s, got, record)
			require.Equal(s, got.State, record.State)
			require.Equal(s, got.Remaining > 0, record.Remaining > 0)
		}
	}},
	{"list: it can be left early, entered again, and used while names change", func(s *suite) {
		const n = 300
		for i := range n {
			s.acquire(request(fmt.Sprintf("job-%03d", i), "a"))
		}
		list, seen := s.store.List(s.Context(), lease.ListRequest{}), []string(nil)
		for record, err := range list {
			require.NoError(s, err)
			seen = append(seen, record.Name)
			if len(seen) == 2 {
				break
			}
		}
		for record, err := range list {
			require.NoError(s, err)
			s.release(record.Claim) // List holds no lock that Release needs
			seen = append(seen, record.Name)
		}
		require.Len(s, seen, n+2)
		require.True(s, slices.IsSorted(seen[2:]))
		for _, record := range s.list(lease.ListRequest{}) {
			require.Equal(s, lease.Free, record.State)
		}
	}},
	{"a ctx that has ended is an error, and the store goes on", func(s *suite) {
		l := s.acquire(request("job", "a"))
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, err := s.store.Acquire(ctx, request("other", "a"))
		require.Error(s, err)
		_, err = s.store.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: long})
		require.Error(s, err)
		_, err = s.store.Get(ctx, "job")
		require.Error(s, err)
		for _, err = range s.store.List(ctx, lease.ListRequest{}) {
			require.Error(s, err)
		}
		require.Error(s, err)
		_, err = s.store.Sweep(ctx, lease.SweepRequest{})
		require.Error(s, err)
		s.renew(l.Claim, long)
		s.release(l.Claim)
	}},
}
