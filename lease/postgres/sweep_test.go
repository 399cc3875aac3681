package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
)

// namesVariable sets how many names the test of a large store has.
const namesVariable = "PGLATCH_LEASE_NAMES"

// fill makes n held leases as if each had been acquired.
func (j judge) fill(n int) {
	j.exec(`INSERT INTO pglatch_lease.locks (name, holder, id, token, version, acquired_at, expires_at, available_at, metadata, idempotency_key,
			lock_delay, min_hold, max_lifetime, cleared, uncounted, settled, due_at)
		SELECT 'name-' || i, 'h', 'id', 1, 1, now(), now() + interval '1 hour', now() + interval '1 hour', '{}', '', 0, 0, 0, false, 0, false, now() + interval '1 hour'
		FROM generate_series(1, $1::int) AS i`, n)
	j.exec("SELECT pglatch_lease.count($1)", n)
}

func TestDeletingRowsDoesNotRestartTheirTokens(t *testing.T) {
	t.Parallel()
	for how, sql := range map[string]string{"a row": "DELETE FROM pglatch_lease.locks WHERE name = 'x'", "all": "TRUNCATE pglatch_lease.locks"} {
		dsn := pgtest.DSN(t)
		s, j := newStore(t, dsn), newJudge(t, dsn)
		for range 5 {
			cycle(t, s, "x")
		}
		last := acquire(t, s, "x", "h")
		before, err := s.Get(t.Context(), "x")
		require.NoError(t, err)
		j.exec(sql)
		result, err := s.Sweep(t.Context(), lease.SweepRequest{})
		require.NoError(t, err)
		assert.Zero(t, result, how)
		assert.Greater(t, cycle(t, s, "x"), last.Token, how)
		after, err := s.Get(t.Context(), "x")
		require.NoError(t, err)
		assert.Greater(t, after.Version, before.Version, how)
	}
}

// What is counted is what is there, whatever happens at the same time.
func TestHeldLeasesAreCountedRightBesideManyWhoAcquireRenewReleaseAndSweep(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t) + "&pool_max_conns=24"
	s, j := newStore(t, dsn), newJudge(t, dsn)
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	var wg sync.WaitGroup
	for c := range 12 {
		wg.Go(func() {
			for i := range 25 {
				name := fmt.Sprintf("x%d", (c+i)%9)
				d := ttl
				if i%3 == 0 {
					d = 10 * time.Millisecond
				}
				l, err := s.Acquire(ctx, lease.AcquireRequest{Name: name, Holder: "h", TTL: d})
				switch {
				case err != nil:
					assert.True(t, errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrBusy), "%v", err)
				case i%2 == 0:
					_ = s.Release(ctx, l.Claim)
				case i%5 == 0:
					_, _, _ = s.HandOver(ctx, lease.ReleaseRequest{Claim: l.Claim}, lease.AcquireRequest{Name: name, Holder: "h", TTL: d})
				}
				if i%6 == 0 {
					_, err = s.Sweep(ctx, lease.SweepRequest{Retention: time.Nanosecond, Limit: 4})
					assert.True(t, err == nil || errors.Is(err, lease.ErrBusy), "%v", err)
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, one[int](j, "SELECT count(*) FROM pglatch_lease.locks WHERE released_at IS NULL AND NOT cleared"),
		one[int](j, "SELECT coalesce(sum(live), 0) FROM pglatch_lease.tally"))
	assert.Zero(t, one[int](j, "SELECT count(*) FROM pglatch_lease.locks WHERE settled <> ((released_at IS NOT NULL OR cleared) AND uncounted = 0)"))
	assert.Zero(t, one[int](j, "SELECT count(*) FROM pglatch_lease.locks WHERE NOT settled AND released_at IS NULL AND due_at > expires_at"))
}

// A sweep that scanned would read all pages of the table, or of an index.
func TestWhatASweepReadsDoesNotGrowWithTheNumberOfNames(t *testing.T) {
	t.Parallel()
	n := 30_000
	if text := os.Getenv(namesVariable); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, namesVariable)
	}
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.fill(n)
	j.exec("VACUUM (ANALYZE) pglatch_lease.locks")
	for _, name := range []string{"name-1", "name-2"} {
		j.expire(name)
	}
	began := time.Now()
	result, err := s.Sweep(t.Context(), lease.SweepRequest{})
	took := time.Since(began)
	require.NoError(t, err)
	assert.Equal(t, lease.SweepResult{Held: n - 2, Expired: 2, Removed: 2}, result)
	began = time.Now()
	again := open(t, dsn, nil)
	require.NoError(t, again.Migrate(t.Context()))
	acquire(t, again, "first", "h")
	t.Logf("%d names: a sweep took %v; a start, with a migration and an acquire, %v", n, took, time.Since(began))

	for _, sql := range []string{"SELECT * FROM pglatch_lease.sweep(3600000000, 1000, '1s')", "SELECT pglatch_lease.held()"} {
		assert.Less(t, buffers(t, j, sql), 1000, sql)
	}
	assert.Greater(t, buffers(t, j, "SELECT count(*) FROM pglatch_lease.locks WHERE expires_at > now()"), 1000, "the control: a scan")

	j.exec("UPDATE pglatch_lease.locks SET due_at = '-infinity', expires_at = expires_at - interval '1 day', available_at = available_at - interval '1 day' WHERE name LIKE 'name-%7'")
	var all lease.SweepResult
	var times []time.Duration
	for more := true; more; {
		began := time.Now()
		result, err := s.Sweep(t.Context(), lease.SweepRequest{})
		times = append(times, time.Since(began))
		require.NoError(t, err)
		all.Expired += result.Expired
		all.Removed += result.Removed
		more = result.More
	}
	assert.Greater(t, len(times), 1, "a sweep stops when it took its time, and says that there is more")
	slices.Sort(times)
	t.Logf("%d that had expired: %d sweeps, p50 %v, p99 %v, the longest %v", all.Expired, len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	assert.Equal(t, n/10, all.Expired)
	assert.Equal(t, n/10, all.Removed)
	assert.Equal(t, n-2-n/10+1, one[int](j, "SELECT count(*) FROM pglatch_lease.locks"), "what is removed leaves no row; first was acquired")
}

// buffers is how many pages a statement reads and writes, its functions included.
func buffers(t *testing.T, j judge, sql string) (n int) {
	t.Helper()
	rows, err := j.pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "+sql)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for line := range strings.SplitSeq(strings.Split(strings.Join(plan, "\n"), "Planning")[0], " ") {
		if _, number, ok := strings.Cut(line, "="); ok {
			if v, err := strconv.Atoi(strings.TrimRight(number, "\n")); err == nil {
				n += v
			}
		}
	}
	return n
}
