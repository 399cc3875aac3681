//go:build integration

package history

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
)

const (
	jobVariable = "PGLATCH_TEST_JOB" // set in the environment of a child: its job
	processes   = 2

	patience = 5 * await.Patience // on a machine that is too busy for enough kills
)

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		os.Exit(tabletrace.Main(func() int { return child(text) }))
	}
	pgtest.Main(m)
}

// child is a process that fights. It returns its exit code.
func child(text string) int {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = fight(j, os.Stdin, os.Stdout)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return 0
}

func TestNeverTwoHoldersWhileSessionsDieAndLockersClose(t *testing.T) {
	inAllModes(t, func(t *testing.T, c *counters) {
		t.Helper()
		c.run = replay.Start(t, "locks")
		stop := c.terminateSessions(t)
		reports := c.fight(t, duration(t), job{Close: true})
		stop()
		holds, total := merge(t, reports)
		require.Positive(t, total.Lost, "no lock was lost: the faults did not happen")
		c.tally(t, holds, total)
		require.NoError(t, judge.Holds(holds, 1))
		require.Equal(t, total.InTx, c.counter(t, "counter_tx"), "increments under LockTx lose nothing")
		t.Logf("%d acquisitions, %d of them lost; client-side read-modify-writes lost: %d of %d (what a guarded transaction is for)",
			len(holds), total.Lost, total.Client-c.counter(t, "counter_client"), total.Client)
		c.run.RequireLegal(trace.Ask, trace.Acquired, trace.Refused, trace.Release, trace.Released, trace.Lost, trace.Fault, trace.Stopped)
		c.requireNothingLeft(t)
	})
}

func TestNeverTwoHoldersWithHandOverWhileLockersClose(t *testing.T) {
	inAllModes(t, func(t *testing.T, c *counters) {
		t.Helper()
		holds, total := merge(t, c.fight(t, duration(t)/2, job{Close: true, HandOver: true}))
		c.tally(t, holds, total)
		require.NoError(t, judge.Holds(holds, 1))
		require.Equal(t, total.InTx, c.counter(t, "counter_tx"))
		c.requireNothingLeft(t)
	})
}

func TestHoldersOverlapForTheDetectionTimeAtMostWhenHandOversMeetKills(t *testing.T) {
	inAllModes(t, func(t *testing.T, c *counters) {
		t.Helper()
		stop := c.terminateSessions(t)
		reports := c.fight(t, duration(t)/2, job{Close: true, HandOver: true, Slack: 100 * time.Millisecond})
		stop()
		holds, total := merge(t, reports)
		require.Positive(t, total.Lost)
		c.tally(t, holds, total)
		require.NoError(t, judge.Holds(holds, 1))
		require.Equal(t, total.InTx, c.counter(t, "counter_tx"))
		c.requireNothingLeft(t)
	})
}

func TestNoUpdateIsLostWhenNoSessionDies(t *testing.T) {
	inAllModes(t, func(t *testing.T, c *counters) {
		t.Helper()
		holds, total := merge(t, c.fight(t, duration(t)/2, job{HandOver: true}))
		require.Zero(t, total.Lost)
		c.tally(t, holds, total)
		require.NoError(t, judge.Holds(holds, 1))
		require.Equal(t, total.Client, c.counter(t, "counter_client"))
		require.Equal(t, total.InTx, c.counter(t, "counter_tx"))
		c.requireNothingLeft(t)
	})
}

// Readers share a lock with readers, and a semaphore has three slots. The run is replayed. The control is a run without locks.
func TestNeverTooManyHoldersOfSharedLocksAndSlots(t *testing.T) {
	for name, noLock := range map[string]bool{"locks": false, "control: no locks": true} {
		t.Run(name, func(t *testing.T) {
			c := newCounters(t)
			c.locksPerConn = [processes]int{1, 1000}
			c.run = replay.Start(t, "locks")
			holds, total := merge(t, c.fight(t, duration(t)/2, job{Share: true, NoLock: noLock}))
			if noLock {
				c.run.RequireRefused()
				require.Error(t, judge.Holds(exclusive(holds), 1))
				tally.Control(t, "the run of %d readers, writers and holders of slots is refused", len(holds))
				return
			}
			require.Zero(t, total.Lost)
			c.tally(t, holds, total)
			require.NoError(t, judge.Holds(exclusive(holds), 1))
			c.run.RequireLegal(trace.Ask, trace.Acquired, trace.Refused, trace.Release, trace.Released, trace.Stopped)
			c.requireNothingLeft(t)
		})
	}
}

// exclusive returns the holds of writers.
func exclusive(holds []judge.Hold) []judge.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h judge.Hold) bool { return !h.Exclusive })
}

// The control: without the lock, everything that the other tests look at goes wrong.
func TestWithoutALockUpdatesAreLostAndTheHistoryIsIllegal(t *testing.T) {
	c := newCounters(t)
	c.run = replay.Start(t, "locks")
	holds, total := merge(t, c.fight(t, 3*time.Second, job{NoLock: true}))
	require.Error(t, judge.Holds(holds, 1))
	c.run.RequireRefused()
	require.Less(t, c.counter(t, "counter_client"), total.Client)
	require.Less(t, c.counter(t, "counter_tx"), total.InTx)
	tally.Control(t, "%d of %d updates were lost, and the history is illegal", total.InTx-c.counter(t, "counter_tx"), total.InTx)
}

// enoughKills of sessions end a fight in which they are killed, also on a machine
// that is too busy for them in its time.
func enoughKills(t *testing.T) int64 {
	t.Helper()
	return soak.Size[int64](t, 40, 100)
}

// duration is how long the fights last.
func duration(t *testing.T) time.Duration {
	t.Helper()
	return soak.Size(t, 4*time.Second, time.Minute)
}

// inAllModes runs a fight between processes of each pair of modes. All hand each other the
// same keys, so that a lock means the same in both.
func inAllModes(t *testing.T, test func(t *testing.T, c *counters)) {
	t.Helper()
	for i, mode := range lockmode.All {
		for _, other := range lockmode.All[i:] {
			t.Run(mode.Name+" and "+other.Name, func(t *testing.T) {
				c := newCounters(t)
				c.locksPerConn = [processes]int{mode.LocksPerConn, other.LocksPerConn}
				if mode.LocksPerConn > 1 {
					c.locksPerConn[0] = 1000 // all locks on one session, too
				}
				test(t, c)
			})
		}
	}
}

// counters are two tables of a database of their own, which holders of locks count up.
type counters struct {
	dsn          string
	pool         *pgxpool.Pool
	locksPerConn [processes]int
	killing      bool        // sessions end meanwhile
	run          *replay.Run // nil = nothing is written
	kills        atomic.Int64
}

func newCounters(t *testing.T) *counters {
	t.Helper()
	c := &counters{dsn: pgtest.DSN(t)}
	var err error
	c.pool, err = pgxpool.New(t.Context(), c.dsn)
	require.NoError(t, err)
	t.Cleanup(c.pool.Close)
	for _, table := range []string{"counter_tx", "counter_client"} {
		_, err := c.pool.Exec(t.Context(), "CREATE TABLE "+table+" AS SELECT key::bigint, 0::bigint AS n FROM generate_series(0, 7) AS key")
		require.NoError(t, err)
	}
	return c
}

// fight runs the job in several processes, for the time and, if sessions are killed,
// for as long as it takes to kill enough, and returns their reports.
func (c *counters) fight(t *testing.T, d time.Duration, j job) []report {
	t.Helper()
	j.DSN, j.Run = c.dsn, c.run.Path()
	enough, over := enoughKills(t), make(chan struct{})
	go func() {
		defer close(over)
		<-time.After(d)
		for limit := time.Now().Add(patience); c.killing && c.kills.Load() < enough && time.Now().Before(limit); {
			<-time.After(10 * time.Millisecond)
		}
	}()
	reports := make([]report, processes)
	var all []*proctest.Process
	for i := range reports {
		j.Process, j.LocksPerConn = int64(i+1), c.locksPerConn[i]
		text, err := json.Marshal(j)
		require.NoError(t, err)
		p := proctest.Start(t, proctest.Self(t, jobVariable+"="+string(text)))
		p.Limit += patience
		all = append(all, p)
	}
	<-over
	for _, p := range all {
		p.CloseStdin()
	}
	for i, p := range all {
		require.Zero(t, p.Wait())
		require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &reports[i]))
	}
	require.True(t, !c.killing || c.kills.Load() >= enough, "the machine is too busy: only %d sessions were killed", c.kills.Load())
	return reports
}

// terminateSessions ends a random lock session several times a second, until stop:
// at most one for each hold, so that a slow machine gets on, too.
func (c *counters) terminateSessions(t *testing.T) (stop func()) {
	t.Helper()
	c.killing = true
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for holds := int64(0); pause(ctx, 30*time.Millisecond); {
			before := holds
			err := c.pool.QueryRow(ctx, "SELECT sum(n)::bigint FROM counter_client").Scan(&holds)
			if err == nil && holds != before {
				err = c.terminateOne(ctx)
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// terminateOne ends a random session, if there is one.
func (c *counters) terminateOne(ctx context.Context) error {
	asked := trace.Now()
	rows, err := c.pool.Query(ctx, `SELECT application_name, pg_terminate_backend(pid) FROM (
		SELECT application_name, pid FROM pg_stat_activity WHERE application_name LIKE 'fighter-%' ORDER BY random() LIMIT 1) AS one`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (name string, err error) {
		return name, row.Scan(&name, nil)
	})
	for _, name := range names {
		c.kills.Add(1)
		c.run.Writer().Emit(trace.Event{Kind: trace.Fault, Who: name, Text: "session ended", Asked: asked})
	}
	return err
}

func (c *counters) counter(t *testing.T, table string) (n int64) {
	t.Helper()
	require.NoError(t, c.pool.QueryRow(t.Context(), "SELECT sum(n)::bigint FROM "+table).Scan(&n))
	return n
}

// requireNothingLeft: the processes have ended, and PostgreSQL has nothing of them.
func (c *counters) requireNothingLeft(t *testing.T) {
	t.Helper()
	for what, sql := range map[string]string{
		"locks":       "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
		"connections": "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fighter-%' AND datname = current_database()",
	} {
		await.Until(t, await.Patience, func() bool {
			var n int
			require.NoError(t, c.pool.QueryRow(t.Context(), sql).Scan(&n))
			return n == 0
		}, what)
	}
}

func merge(t *testing.T, reports []report) (holds []judge.Hold, total report) {
	t.Helper()
	held := make(map[string]bool)
	for _, r := range reports {
		require.Empty(t, r.Unexpected)
		holds = append(holds, r.Holds...)
		total.Spans = append(total.Spans, r.Spans...)
		total.InTx += r.InTx
		total.Client += r.Client
		total.Lost += r.Lost
		t.Logf("%d holds, failures: %v", len(r.Holds), r.Failures)
		for _, h := range exclusive(r.Holds) {
			held[h.Key] = true
		}
	}
	require.Len(t, held, keys)
	return holds, total
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, the same for all processes.
func monotonic() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return ts.Nano()
}

// tally reports a fight: its acquisitions, the sessions that were ended, and the longest window.
func (c *counters) tally(t *testing.T, holds []judge.Hold, total report) {
	t.Helper()
	tally.Count(t, "acquisitions", len(holds))
	tally.Count(t, "lost", int(total.Lost))
	tally.Count(t, "transactions", int(total.InTx))
	if c.killing {
		tally.Faults(t, tally.Fault{Name: "session ended", Times: int(c.kills.Load()), Overlap: new(window(holds, total.Spans))})
	}
}

// A span is a lost hold, from its grant until its holder knew of the loss.
type span struct {
	Key           string
	Granted, Told int64
}

// learns returns a function that returns when the holder of a lock learned of its loss: when its context ended.
func learns(lock *advisory.Lock) (told func() int64) {
	var at atomic.Int64
	if lock != nil {
		context.AfterFunc(lock.Context(), func() { at.Store(monotonic()) })
	}
	return func() int64 { return cmp.Or(at.Load(), monotonic()) }
}

func (f *fighter) lostSpan(key, granted, told int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Spans = append(f.report.Spans, span{agents.ID(key).String(), granted, told})
}

// window returns the longest time for which a holder that had lost its lock did not know so, while another had it.
func window(holds []judge.Hold, lost []span) (longest time.Duration) {
	for _, s := range lost {
		for _, h := range holds {
			if h.Key == s.Key && h.Begin.Latest > s.Granted && h.Begin.Latest < s.Told {
				longest = max(longest, time.Duration(s.Told-h.Begin.Latest))
			}
		}
	}
	return longest
}

func TestAWindowIsForHowLongAHolderDidNotKnow(t *testing.T) {
	t.Parallel()
	hold := func(key string, begin int64) judge.Hold { return judge.Hold{Key: key, Begin: judge.At(begin)} }
	lost := []span{{"a", 1, 8}, {"a", 7, 7}, {"b", 5, 9}}
	assert.Zero(t, window([]judge.Hold{hold("a", 1), hold("a", 8), hold("b", 5), hold("b", 2), hold("c", 6)}, lost))
	assert.EqualValues(t, 3, window([]judge.Hold{hold("a", 6), hold("a", 5), hold("b", 7)}, lost))
}
