package leasetest

import (
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

var acquireCases = []testCase{
	{"acquire: a free name is granted", func(s *suite) {
		r := request("job", "worker-1")
		r.Metadata = map[string]string{"host": "a", "note": "två\nlines \"quoted\" ✓", "empty": ""}
		l := s.acquire(r)
		require.Equal(s, "job", l.Name)
		require.Equal(s, "worker-1", l.Holder)
		require.NotEmpty(s, l.ID)
		require.Positive(s, l.Token)
		require.WithinDuration(s, l.AcquiredAt.Add(long), l.ExpiresAt, s.h.Precision)
		require.LessOrEqual(s, l.Remaining, long)
		require.Greater(s, l.Remaining, long-s.bound())
		require.Equal(s, r.Metadata, l.Metadata)

		got := s.get("job")
		requireSameLease(s, l, got.Lease)
		require.Equal(s, lease.Held, got.State)
		require.Positive(s, got.Version)
	}},
	{"acquire: a name that is held is refused, also to its holder, and nothing changes", func(s *suite) {
		s.acquire(request("job", "a"))
		s.unchanged(func() {
			for _, holder := range []string{"b", "a"} {
				held := s.refused(request("job", holder))
				require.Equal(s, "a", held.Holder)
				require.LessOrEqual(s, held.Remaining, long)
				require.Greater(s, held.Remaining, long-s.bound())
			}
		})
	}},
	{"acquire: the recommended retry spreads a herd", func(s *suite) {
		s.acquire(request("job", "a"))
		seen := map[time.Duration]bool{}
		for range 20 {
			seen[s.refused(request("job", "b")).Retry] = true
		}
		require.Greater(s, len(seen), 5)
	}},
	{"acquire: an expired lease is taken over without a sweep, and not before", func(s *suite) {
		old := s.acquire(s.brief("job", "a"))
		next := s.succeed(request("job", "b"))
		require.False(s, next.AcquiredAt.Before(old.ExpiresAt), "%v is before %v", next.AcquiredAt, old.ExpiresAt)
		require.Greater(s, next.Token, old.Token)
		require.NotEqual(s, old.ID, next.ID)
	}},
	{"acquire: names that differ at all are different locks", func(s *suite) {
		names := []string{
			"job", "Job", "job ", " job", "job/1", "job%2F1", "job+1", "job 1", "job.", ".job", "...", "%", "_", "?x=1#y", "é", "e\u0301", "日本", "\U0001F600",
			"'; DROP TABLE locks; --", `\`, `"`, strings.Repeat("n", lease.MaxName), strings.Repeat("é", lease.MaxName/2),
		}
		for _, name := range names {
			l := s.acquire(request(name, "a"))
			require.Equal(s, name, l.Name)
			require.Equal(s, name, s.get(name).Name)
			s.refused(request(name, "b"))
		}
		require.Len(s, s.list(lease.ListRequest{}), len(names))
	}},
	{"idempotency: the same request gets the same lease while it is current", func(s *suite) {
		r := request("job", "a")
		r.IdempotencyKey = "attempt-1"
		first := s.acquire(r)
		s.unchanged(func() {
			again := s.acquire(r)
			requireSameLease(s, first, again)
			require.LessOrEqual(s, again.Remaining, first.Remaining, "it is not prolonged")
		})
		other := r
		other.Holder = "b"
		s.refused(other)
		other = r
		other.IdempotencyKey = "attempt-2"
		s.refused(other)
		other.IdempotencyKey = ""
		s.refused(other)
		other = r
		other.Name = "other"
		require.NotEqual(s, first.ID, s.acquire(other).ID)
	}},
	{"idempotency: a lease that was renewed is got again as it is", func(s *suite) {
		r := request("job", "a")
		r.IdempotencyKey = "attempt-1"
		renewed := s.renew(s.acquire(r).Claim, 2*long)
		again := s.acquire(r)
		requireSameLease(s, renewed, again)
		require.Greater(s, again.Remaining, 2*long-s.bound())
	}},
	{"idempotency: after a release or an expiry the same request gets a new lease", func(s *suite) {
		r := request("job", "a")
		r.IdempotencyKey = "attempt-1"
		first := s.acquire(r)
		s.release(first.Claim)
		r.TTL = s.h.TTL
		second := s.acquire(r)
		require.Greater(s, second.Token, first.Token)
		s.expire("job")
		third := s.acquire(r)
		require.Greater(s, third.Token, second.Token)
		require.NotEqual(s, second.ID, third.ID)
	}},
	{"idempotency: the same request many times at once gets one lease", func(s *suite) {
		r := request("job", "a")
		r.IdempotencyKey = "attempt-1"
		leases, errs := make([]lease.Lease, 8), make([]error, 8)
		var wg sync.WaitGroup
		for i := range leases {
			wg.Go(func() { leases[i], errs[i] = s.store.Acquire(s.Context(), r) })
		}
		wg.Wait()
		for i := range leases {
			require.NoError(s, errs[i])
			assert.Equal(s, leases[0].Claim, leases[i].Claim)
		}
	}},
}

var delayCases = []testCase{
	{"LockDelay keeps a name from everybody after an expiry", func(s *suite) {
		r := s.brief("job", "a")
		r.LockDelay = s.h.TTL
		old := s.acquire(r)
		record := s.expire("job")
		require.Equal(s, lease.Expired, record.State)
		if record.AvailableIn > 0 { // else this machine was paused for the whole delay
			require.LessOrEqual(s, record.AvailableIn, s.h.TTL)
		}
		next := s.succeed(request("job", "a"))
		require.False(s, next.AcquiredAt.Before(old.ExpiresAt.Add(r.LockDelay).Add(-s.h.Precision)))
	}},
	{"LockDelay is told with its end and without a holder, and a sweep does not shorten it", func(s *suite) {
		lasting := request("held", "a")
		lasting.LockDelay = long
		s.acquire(lasting)
		require.Greater(s, s.refused(request("held", "b")).Remaining, long, "the delay is part of what remains")
		r := s.brief("job", "a")
		r.LockDelay = long
		s.acquire(r)
		s.expire("job")
		for range 2 {
			for _, holder := range []string{"a", "b"} {
				held := s.refused(request("job", holder))
				require.Empty(s, held.Holder)
				require.LessOrEqual(s, held.Remaining, long)
				require.Greater(s, held.Remaining, long-s.bound())
			}
			require.Zero(s, s.sweep(lease.SweepRequest{Retention: time.Nanosecond}).Removed, "the delay is still needed")
			require.Positive(s, s.get("job").AvailableIn)
		}
	}},
	{"LockDelay is none after a release", func(s *suite) {
		r := request("job", "a")
		r.LockDelay = long
		s.release(s.acquire(r).Claim)
		require.Zero(s, s.get("job").AvailableIn)
		s.acquire(request("job", "b"))
	}},
	{"MinHold keeps a name from everybody after a release", func(s *suite) {
		r := request("job", "a")
		r.MinHold, r.IdempotencyKey = s.h.TTL, "attempt-1"
		old := s.acquire(r)
		s.release(old.Claim)
		s.release(old.Claim)
		require.Equal(s, lease.Free, s.get("job").State)
		next := s.succeed(r)
		require.NotEqual(s, old.ID, next.ID)
		require.False(s, next.AcquiredAt.Before(old.AcquiredAt.Add(r.MinHold).Add(-s.h.Precision)))
	}},
	{"MinHold is told with its end and without a holder, and outlasts an expiry and a sweep", func(s *suite) {
		for name, end := range map[string]func(lease.Claim){
			"released": s.release,
			"expired":  func(c lease.Claim) { s.expire(c.Name) },
		} {
			r := s.brief(name, "a")
			if name == "released" {
				r.TTL = long // it does not end before its release
			}
			r.MinHold = long
			end(s.acquire(r).Claim)
			require.Zero(s, s.sweep(lease.SweepRequest{Retention: time.Nanosecond}).Removed, "the name is still kept")
			held := s.refused(request(name, "b"))
			require.Empty(s, held.Holder)
			require.LessOrEqual(s, held.Remaining, long)
			require.Greater(s, held.Remaining, long-s.bound())
			require.Positive(s, s.get(name).AvailableIn)
		}
	}},
	{"MaxLifetime bounds all renewals", func(s *suite) {
		r := s.brief("job", "a")
		r.MaxLifetime = 3 * s.h.TTL
		l := s.acquire(r)
		end := l.AcquiredAt.Add(r.MaxLifetime)
		s.eventually(func() bool {
			renewed, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: long})
			if err == nil {
				require.False(s, renewed.ExpiresAt.After(end.Add(s.h.Precision)), "%v is after %v", renewed.ExpiresAt, end)
				require.LessOrEqual(s, renewed.Remaining, r.MaxLifetime, "what remains is what a client trusts")
				return false
			}
			require.ErrorIs(s, err, lease.ErrExpired)
			return true
		}, "the lease never ends")
		s.acquire(request("job", "b"))
	}},
	{"MaxLifetime bounds the first TTL too", func(s *suite) {
		r := request("job", "a")
		r.MaxLifetime = s.h.TTL
		l := s.acquire(r)
		require.WithinDuration(s, l.AcquiredAt.Add(s.h.TTL), l.ExpiresAt, s.h.Precision)
		require.LessOrEqual(s, l.Remaining, s.h.TTL)
		s.expire("job")
	}},
}
