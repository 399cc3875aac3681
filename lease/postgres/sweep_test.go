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
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
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

const era = 1 << 40

func TestAnAcquireThatWaitsForASweepCountsOn(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			s, j := newStore(t, dsn), newJudge(t, dsn)
			// The control decides about a floor and a row in one snapshot.
			j.exec("CREATE TABLE by_hand (name text PRIMARY KEY, token bigint)")
			const control = `INSERT INTO by_hand AS t SELECT 'x', s.floor + 1 FROM pglatch_lease.store AS s ON CONFLICT (name) DO UPDATE SET token = t.token + 1 RETURNING token`
			var token, last int64
			for range 4 {
				cycle(t, s, "x")
				token = one[int64](j, control)
			}
			j.exec("ALTER DATABASE " + pgx.Identifier{one[string](j, "SELECT current_database()")}.Sanitize() + " SET default_transaction_isolation = '" + isolation + "'")
			s = open(t, dsn, nil)

			sweep := j.begin()
			_, err := sweep.Exec(t.Context(), "SELECT pglatch_lease.sweep(0, 10, '1s')")
			require.NoError(t, err)
			_, err = sweep.Exec(t.Context(), "DELETE FROM by_hand")
			require.NoError(t, err)
			acquired, counted := make(chan uint64, 1), make(chan int64, 1)
			go func() {
				for {
					l, err := s.Acquire(context.WithoutCancel(t.Context()), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
					if busy := (*lease.BusyError)(nil); assert.ErrorAs(t, orBusy(err), &busy) && err == nil {
						acquired <- l.Token
						return
					}
				}
			}()
			go func() { counted <- one[int64](j, control) }()
			j.eventually(func() bool {
				return one[int](j, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
			})
			require.NoError(t, sweep.Commit(t.Context()))
			assert.Greater(t, <-acquired, uint64(4))
			last = <-counted
			assert.LessOrEqual(t, last, token, "the control repeats a token")
		})
	}
}

// orBusy lets a test that takes *lease.BusyError for granted take success too.
func orBusy(err error) error {
	if err == nil {
		return &lease.BusyError{}
	}
	return err
}

func TestTokensRiseAcrossThePromotionOfAStandbyThatMissedSome(t *testing.T) {
	t.Parallel()
	primary := startServer(t, nil)
	s := newStore(t, primary.DSN(""))
	cycle(t, s, "x")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	replica := newJudge(t, standby.DSN(""))
	replica.eventually(func() bool { return one[int](replica, "SELECT count(*) FROM pglatch_lease.locks") == 1 })
	onStandby := open(t, standby.DSN(""), nil)
	_, err = onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "as a standby is")
	held := acquire(t, s, "held", "h").Claim
	replica.eventually(func() bool { return one[int](replica, "SELECT count(*) FROM pglatch_lease.locks") == 2 })
	_, err = onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "held", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrBusy, "what a standby knows of a lease is old")
	require.NoError(t, s.Release(t.Context(), held))

	replica.exec("SELECT pg_wal_replay_pause()")
	before := make(map[string]uint64)
	for _, name := range []string{"x", "unseen"} { // the standby knows of x, and nothing of the other
		for range 5 {
			before[name] = cycle(t, s, name)
		}
	}
	require.NoError(t, primary.Stop(t.Context(), pgserver.Immediate))
	replica.exec("SELECT pg_wal_replay_resume()")
	require.True(t, one[bool](replica, "SELECT pg_promote(wait => false)"), "a wait in the server would hold a snapshot, with which what is replayed can conflict")
	replica.eventually(func() bool { return !one[bool](replica, "SELECT pg_is_in_recovery()") })
	// What is replayed after the pause depends on what had been received: the rows go back to the first.
	replica.exec("ALTER TABLE pglatch_lease.locks DISABLE TRIGGER forget")
	replica.exec("DELETE FROM pglatch_lease.locks WHERE name = 'unseen'; UPDATE pglatch_lease.locks SET token = 1, version = 1, released_at = now(), available_at = now()")
	onStandby.Close()
	onStandby = open(t, standby.DSN(""), nil)
	for name, token := range before {
		after := cycle(t, onStandby, name)
		assert.Greater(t, after, token, name)
		assert.LessOrEqual(t, after%era, token%era, "the control: without an era it is no greater")
		assert.Equal(t, uint64(1), cycle(t, onStandby, name)/era, "one promotion counts once")
	}
}

func TestAnEraBeginsWhereTheServerIsAnother(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	require.Equal(t, uint64(1), cycle(t, s, "x"))
	for change, want := range map[string]uint64{
		"timeline = timeline":                       5,
		"timeline = timeline - 3":                   8, // three promotions since
		"system_identifier = system_identifier + 1": 6, // a dump, restored elsewhere
		"timeline = timeline + 7":                   6, // pg_upgrade begins at 1 again
		"relation = 1":                              6, // a dump, restored here
		"relation = 1, timeline = timeline - 3":     9, // the same, after three promotions
	} {
		j.exec("DELETE FROM pglatch_lease.locks") // which raises the floor
		j.exec("UPDATE pglatch_lease.store SET floor = $1::bigint + 17, "+change, int64(5*era))
		assert.Equal(t, want, cycle(t, s, "x")/era, change)
	}
	j.exec("UPDATE pglatch_lease.locks SET token = 9223372036854775807")
	_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorContains(t, err, "out of range")
}
