package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// bulk writes n names into a closed store, as another program does, of leases that end at
// expires, and were released then or not.
func bulk(tb testing.TB, path string, n int, expires time.Time, released bool) {
	tb.Helper()
	end, releasedAt := expires.UnixNano(), int64(0)
	if released {
		releasedAt = end
	}
	db := other(tb, path)
	run(tb, db, "PRAGMA synchronous = OFF")
	run(tb, db, "PRAGMA cache_size = -200000")
	run(tb, db, `WITH RECURSIVE g(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM g WHERE i + 1 < ?1)
		INSERT INTO leases (name, holder, id, token, idempotency_key, acquired_at, expires_at, released_at,
			lock_delay, min_hold, max_lifetime, cleared, uncounted, version, metadata)
		SELECT printf('tenant/job/%010d', i), 'worker-1', printf('N%025d', i), 1, '', ?2, ?2, ?3, 0, 0, 0, 0, 0, 1, '{}' FROM g`,
		n, end, releasedAt)
	require.NoError(tb, db.Close())
}

func TestSweepsAndTheStartLookAtNoMoreThanIsDue(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{})
	plans, err := s.Plans(t.Context())
	require.NoError(t, err)
	require.Len(t, plans, 4)
	for _, plan := range plans {
		require.True(t, strings.HasPrefix(plan, "SEARCH ") || plan == "SCAN state", plan)
	}
}

func TestASweepLooksAtASmallPartAndKnowsWhatIsHeld(t *testing.T) {
	t.Parallel()
	names := soak.Size(t, 1500, 5000)
	for _, c := range []struct {
		what     string
		expires  time.Duration
		released bool
		held     int
	}{{"held", time.Hour, false, names}, {"expired", -2 * time.Hour, false, 0}, {"released", -2 * time.Hour, true, 0}} {
		path := newPath(t)
		require.NoError(t, open(t, path, sqlite.Config{}).Close())
		bulk(t, path, names, time.Now().Add(c.expires), c.released)
		s := open(t, path, sqlite.Config{})
		result, err := s.Sweep(t.Context(), lease.SweepRequest{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, c.held, result.Held, "%s: of which it has looked at ten", c.what)
		require.LessOrEqual(t, result.Removed, 10)
		expired, removed := result.Expired, result.Removed
		for result.More {
			result, err = s.Sweep(t.Context(), lease.SweepRequest{})
			require.NoError(t, err)
			require.Equal(t, c.held, result.Held, c.what)
			expired, removed = expired+result.Expired, removed+result.Removed
		}
		require.Equal(t, names-c.held, removed, "%s: all are forgotten", c.what)
		if !c.released {
			require.Equal(t, names-c.held, expired, c.what)
		}
		before := s.Stats()
		_, err = s.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		require.Equal(t, before.Transactions+1, s.Stats().Transactions, "%s: nothing is due", c.what)
	}
}

func TestAReleaseShortlyBeforeTheEndLeavesThePlaceAndAnEarlyOneMovesIt(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{})
	for ttl, moved := range map[time.Duration]bool{time.Minute: false, time.Hour: true} {
		name := ttl.String()
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "worker-1", TTL: ttl})
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), l.Claim))
		at, err := s.Integer(t.Context(), "SELECT at FROM due WHERE name = '"+name+"'")
		require.NoError(t, err)
		require.Equal(t, moved, at < l.ExpiresAt.UnixNano(), name)
		l, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "worker-1", TTL: time.Second})
		require.NoError(t, err)
		at, err = s.Integer(t.Context(), "SELECT at FROM due WHERE name = '"+name+"'")
		require.NoError(t, err)
		require.LessOrEqual(t, at, l.ExpiresAt.UnixNano(), "%s: a lease is looked at when it ends", name)
	}
}

// What another program changes is counted too.
func TestCountsAreRightWhateverWasChangedAndBy(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	held := func() int {
		result, err := s.Sweep(t.Context(), lease.SweepRequest{Retention: time.Nanosecond})
		require.NoError(t, err)
		return result.Held
	}
	var all []lease.Lease
	for i := range 10 {
		all = append(all, acquire(t, s, fmt.Sprint("job/", i)))
	}
	require.Equal(t, 10, held())
	for _, l := range all[:3] {
		require.NoError(t, s.Release(t.Context(), l.Claim))
	}
	_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: all[3].Claim, TTL: 2 * time.Hour})
	require.NoError(t, err)
	require.Equal(t, 7, held())
	db := other(t, path)
	run(t, db, "DELETE FROM leases WHERE name = 'job/4'")
	require.Equal(t, 6, held())
	run(t, db, "UPDATE leases SET released_at = acquired_at WHERE name = 'job/5'")
	require.Equal(t, 5, held())
	require.NoError(t, db.Close())
	require.NoError(t, s.Close())
	s = open(t, path, sqlite.Config{})
	require.Equal(t, 5, held())
	n := 0
	for _, err := range s.List(t.Context(), lease.ListRequest{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 5, n)
	due, err := s.Integer(t.Context(), "SELECT count(*) FROM due")
	require.NoError(t, err)
	require.EqualValues(t, 5, due, "each name has one place")
}

// BenchmarkNames tells how long the start and sweeps take with PGLATCH_NAMES names, by
// default three million.
func BenchmarkNames(b *testing.B) {
	names, _ := strconv.Atoi(os.Getenv("PGLATCH_NAMES"))
	if names == 0 {
		names = 3_000_000
	}
	for _, c := range []struct {
		what     string
		expires  time.Duration
		released bool
	}{{"held", 10 * time.Hour, false}, {"expired", -2 * time.Hour, false}, {"released", -2 * time.Hour, true}} {
		b.Run(c.what, func(b *testing.B) {
			path := newPath(b)
			require.NoError(b, open(b, path, sqlite.Config{}).Close())
			bulk(b, path, names, time.Now().Add(c.expires), c.released)
			b.ResetTimer()
			began := time.Now()
			s, err := sqlite.Open(context.Background(), path, sqlite.Config{})
			require.NoError(b, err)
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "open-ms")
			sweepAll(b, s)
			began = time.Now()
			require.NoError(b, s.Close())
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "close-ms")
		})
	}
}

// sweepAll sweeps while there is more, for ten seconds at most, beside a client that
// acquires and releases one lock after the other.
func sweepAll(b *testing.B, s *sqlite.Store) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	var client sync.WaitGroup
	var waits, sweeps []float64
	client.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			l, err := s.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprint("client/", i), Holder: "worker", TTL: time.Minute})
			if err != nil {
				return
			}
			waits = append(waits, milliseconds(began))
			_ = s.Release(ctx, l.Claim)
		}
	})
	done := 0
	start := time.Now()
	for more := true; more && time.Since(start) < 10*time.Second; {
		began := time.Now()
		result, err := s.Sweep(b.Context(), lease.SweepRequest{})
		require.NoError(b, err)
		sweeps = append(sweeps, milliseconds(began))
		done += max(result.Expired, result.Removed)
		more = result.More
		b.ReportMetric(float64(result.Held), "held")
	}
	b.ReportMetric(float64(done)/time.Since(start).Seconds(), "swept/s")
	stop()
	client.Wait()
	for what, all := range map[string][]float64{"sweep": sweeps, "acquire": waits} {
		slices.Sort(all)
		for _, part := range []int{50, 99, 100} {
			if len(all) > 0 {
				b.ReportMetric(all[(len(all)-1)*part/100], fmt.Sprint(what, "-p", part, "-ms"))
			}
		}
	}
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
