package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/soak"
)

// A crowd takes and releases locks in many goroutines.
type crowd struct {
	wg     sync.WaitGroup
	stop   atomic.Bool
	cycles atomic.Int64
	lost   atomic.Int64
	failed atomic.Int64
}

// startCrowd starts n goroutines on random keys out of many, or, one time of four,
// out of few, so that some wait.
func startCrowd(t *testing.T, l *advisory.Locker, n int) *crowd {
	t.Helper()
	c := &crowd{}
	for range n {
		c.wg.Go(func() {
			for !c.stop.Load() {
				key := agents.ID(rand.Int64N(1 << 30))
				if rand.IntN(4) == 0 {
					key = agents.ID(rand.Int64N(4))
				}
				lock, err := l.Acquire(context.Background(), key)
				if err != nil {
					c.failed.Add(1)
					assert.ErrorIs(t, err, advisory.ErrUnavailable)
					continue
				}
				runtime.Gosched()
				if err := lock.Release(); err != nil {
					c.lost.Add(1)
					assert.ErrorIs(t, err, advisory.ErrLost)
				}
				c.cycles.Add(1)
			}
		})
	}
	return c
}

func (c *crowd) end() { c.stop.Store(true); c.wg.Wait() }

// lockSessions is the condition for the Locker's own sessions.
const lockSessions = "application_name = 'crowd' AND datname = current_database()"

func TestSessionsThatEndDuringBatchesLoseLocksAndLeaveNothing(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, work := open(t, advisory.Config{DSN: dsn, LocksPerConn: 50, ApplicationName: "crowd", Wait: advisory.NoTimeout}), dbtest.Pool(t, dsn)
	c := startCrowd(t, l, 100)
	for range 30 {
		seen := c.cycles.Load()
		_, err := work.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "+lockSessions+" ORDER BY random() LIMIT 1")
		require.NoError(t, err)
		eventually(t, func() bool { return c.cycles.Load() > seen+100 })
	}
	c.end()
	eventually(t, func() bool { return locks(t, work, true) == 0 && l.Stats().Locks == 0 })
	assert.Positive(t, l.Stats().SessionsLost)
	assert.Positive(t, c.lost.Load()+c.failed.Load()+l.Stats().Lost)
	t.Logf("%d cycles, %d lost, %d failed, %+v", c.cycles.Load(), c.lost.Load(), c.failed.Load(), l.Stats())
	l.Close()
	assert.Zero(t, locks(t, work, true))
}

func TestBatchesThatAreCanceledLoseNothing(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, work := open(t, advisory.Config{DSN: dsn, LocksPerConn: 50, ApplicationName: "crowd", Wait: advisory.NoTimeout}), dbtest.Pool(t, dsn)
	c := startCrowd(t, l, 100)
	for range soak.Size(t, 100, 500) {
		_, err := work.Exec(t.Context(), "SELECT pg_cancel_backend(pid), pg_sleep(0.001) FROM pg_stat_activity WHERE "+lockSessions)
		require.NoError(t, err)
	}
	c.end()
	assert.Zero(t, c.lost.Load())
	assert.Zero(t, c.failed.Load())
	assert.Zero(t, l.Stats().SessionsLost)
	eventually(t, func() bool { return locks(t, work, true) == 0 && l.Stats().Locks == 0 })
}

//nolint:paralleltest // it measures the heap of the process
func TestTenThousandLocksLiveOnTwoConnections(t *testing.T) {
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "256"}})
	l := open(t, advisory.Config{DSN: server.DSN(""), LocksPerConn: 5_000, MaxLocks: 10_000, Wait: advisory.NoTimeout})
	work := dbtest.Pool(t, server.DSN(""))
	const n = 10_000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	taken := takeMany(t, l, n)
	took := time.Since(start)
	for range 2 { // the first leaves what is in a sync.Pool
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	perLock := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("taken in %v, %d bytes of heap per lock, %+v", took, perLock, l.Stats())
	assert.Less(t, perLock, int64(1024)*2, "with room for what the test itself has")
	assert.Less(t, l.Stats().Batches, int64(n/10), "many locks share a round trip")
	assert.Equal(t, n, locks(t, work, true))
	assert.Equal(t, 2, l.Stats().SessionsInUse)
	assert.Equal(t, n, l.Stats().Locks)
	spread := make(map[uint32]int)
	for _, lock := range taken {
		spread[lock.PID()]++
	}
	require.Len(t, spread, 2)

	_, err := l.Acquire(t.Context(), agents.ID(n))
	require.ErrorIs(t, err, advisory.ErrLockTableFull)
	full, ok := errors.AsType[*advisory.LockTableFullError](err)
	require.True(t, ok)
	assert.Equal(t, n, full.MaxLocks)
	assert.Equal(t, n, full.Locks)
	assert.Equal(t, 256*300, full.LockTable)
	require.ErrorContains(t, err, "max_locks_per_transaction × (max_connections + max_prepared_transactions) = 76800")
	require.ErrorContains(t, err, "MaxLocks")

	eventually(t, func() bool { return l.SessionStats().Watches >= 2 })
	pid := taken[0].PID()
	start = time.Now()
	_, err = work.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
	require.NoError(t, err)
	for _, lock := range taken {
		if lock.PID() == pid {
			<-lock.Lost()
		}
	}
	t.Logf("%d holders were told in %v", spread[pid], time.Since(start))
	assert.Equal(t, int64(spread[pid]), l.Stats().Lost, "each once")
	var wg sync.WaitGroup
	for _, lock := range taken {
		wg.Go(func() {
			if err := lock.Release(); lock.PID() == pid {
				assert.ErrorIs(t, err, advisory.ErrLost)
			} else {
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	eventually(t, func() bool { return locks(t, work, true) == 0 })
	assert.Zero(t, l.Stats().Locks)
}

func takeMany(t *testing.T, l *advisory.Locker, n int) []*advisory.Lock {
	t.Helper()
	taken := make([]*advisory.Lock, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 512 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				var err error
				taken[i], err = l.Acquire(t.Context(), agents.ID(int64(i)))
				if !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	return taken
}

func TestABatchInAFullLockTableKeepsWhatItGotAndTypesTheRest(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}})
	dsn := server.DSN("")
	l, work := open(t, advisory.Config{DSN: dsn, LocksPerConn: many, MaxLocks: 1_000_000, Wait: advisory.NoTimeout}), dbtest.Pool(t, dsn)
	conn, err := work.Acquire(t.Context()) // before the server takes no new connections
	require.NoError(t, err)
	defer conn.Release()
	first, err := l.Acquire(t.Context(), agents.ID(1<<20))
	require.NoError(t, err)
	count := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_lock_status() WHERE locktype = 'advisory' AND granted").Scan(&n))
		return n
	}
	require.Equal(t, 1, count()) // and its plan is there
	var mu sync.Mutex
	held := []*advisory.Lock{first}
	refused := 0
	var wg sync.WaitGroup
	for i := range 1500 { // two batches at least
		wg.Go(func() {
			lock, err := l.Acquire(t.Context(), agents.ID(int64(i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				full, ok := errors.AsType[*advisory.LockTableFullError](err)
				if assert.True(t, ok, "%v", err) {
					assert.Zero(t, full.MaxLocks, "it was the server")
					assert.ErrorContains(t, err, "53200")
				}
				refused++
				return
			}
			held = append(held, lock)
		})
	}
	wg.Wait()
	require.Positive(t, refused)
	t.Logf("%d held, %d refused", len(held), refused)
	assert.Equal(t, len(held), count())
	assert.Equal(t, len(held), l.Stats().Locks)
	assert.Zero(t, l.Stats().SessionsLost)
	for _, lock := range held {
		require.NoError(t, lock.Release())
	}
	assert.Zero(t, count())
}

func TestModesOfSessionsExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := openAs(t, advisory.Config{DSN: dsn}), openAs(t, advisory.Config{DSN: dsn, LocksPerConn: many})
	for _, pair := range [][2]*advisory.Locker{{a, b}, {b, a}} {
		lock, err := pair[0].Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = pair[1].TryAcquire(t.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		done := make(chan *advisory.Lock)
		go func() {
			lock, err := pair[1].Acquire(t.Context(), agents.ID(1))
			assert.NoError(t, err)
			done <- lock
		}()
		eventually(t, func() bool { return pair[1].Stats().WaitSteps > 0 })
		require.NoError(t, lock.Release())
		require.NoError(t, (<-done).Release())
	}
}

// Hundreds of keys that another process holds for long wait on a few connections,
// and uncontended keys do not notice.
func TestContendedKeysDoNotHoldUpTheOthers(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	const n = 300
	other, l := open(t, advisory.Config{DSN: dsn, LocksPerConn: many}), open(t, advisory.Config{DSN: dsn, LocksPerConn: many, MaxConns: 4, Wait: advisory.NoTimeout})
	foreign := takeMany(t, other, n)
	done := make(chan *advisory.Lock, n)
	for i := range n {
		go func() {
			lock, err := l.Acquire(t.Context(), agents.ID(int64(i)))
			assert.NoError(t, err)
			done <- lock
		}()
	}
	eventually(t, func() bool { return l.Stats().Waiting == n && l.Stats().WaitSteps >= 6 }) // three at the server, the others in turns
	for i := range 1000 {
		require.NoError(t, l.Do(t.Context(), agents.ID(int64(1_000_000+i)), func(context.Context) error { return nil }))
	}
	require.LessOrEqual(t, l.Stats().Sessions, 4)
	for _, lock := range foreign {
		require.NoError(t, lock.Release())
	}
	for range n {
		require.NoError(t, (<-done).Release())
	}
	require.LessOrEqual(t, l.Stats().Sessions, 4)
}

func TestTwoProcessesShareAHotKey(t *testing.T) {
	pgtest.Long(t)
	dsn := pgtest.DSN(t)
	for _, locksPerConn := range [][2]int{{many, many}, {1, many}} {
		t.Run(fmt.Sprint(locksPerConn), func(t *testing.T) {
			var grants [2]atomic.Int64
			var stop atomic.Bool
			var wg sync.WaitGroup
			var longest atomic.Int64
			for i, n := range locksPerConn {
				l, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, LocksPerConn: n, Wait: advisory.NoTimeout})
				require.NoError(t, err)
				defer l.Close()
				for range 32 {
					wg.Go(func() {
						for !stop.Load() {
							start := time.Now()
							lock, err := l.Acquire(t.Context(), agents.ID(1))
							if !assert.NoError(t, err) {
								return
							}
							longest.Store(max(longest.Load(), int64(time.Since(start))))
							grants[i].Add(1)
							assert.NoError(t, lock.Release())
						}
					})
				}
			}
			eventually(t, func() bool { return grants[0].Load() > 0 && grants[1].Load() > 0 })
			before := [2]int64{grants[0].Load(), grants[1].Load()} // one of them was alone at first
			<-time.After(3 * time.Second)
			stop.Store(true)
			wg.Wait()
			a, b := grants[0].Load()-before[0], grants[1].Load()-before[1]
			t.Logf("%d and %d grants, longest wait %v", a, b, time.Duration(longest.Load()))
			assert.Positive(t, a)
			assert.Positive(t, b)
			assert.Greater(t, float64(min(a, b))/float64(a+b), 0.05)
		})
	}
}

func TestASilentServerIsALossForAllBeforeTheServerLetsGo(t *testing.T) {
	t.Parallel()
	for _, traffic := range []bool{false, true} { // found by a ping, or by a batch
		t.Run(fmt.Sprintf("traffic %v", traffic), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			proxy, err := faultproxy.New(t.Context(), u.Host)
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			proxied, err := proxy.URL(dsn)
			require.NoError(t, err)
			l := open(t, advisory.Config{DSN: proxied, LocksPerConn: many, SessionTTL: 6 * time.Second})
			work := dbtest.Pool(t, dsn)
			const n = 50
			taken := takeMany(t, l, n)
			eventually(t, func() bool { return traffic || l.SessionStats().Watches > 0 })
			proxy.Set(faultproxy.Hold)
			if traffic {
				ctx, cancel := context.WithCancel(t.Context())
				canceled := make(chan error)
				for i := range 3 {
					go func() {
						_, err := l.Acquire(ctx, agents.ID(int64(n+i)))
						canceled <- err
					}()
				}
				cancel()
				for range 3 {
					require.ErrorIs(t, <-canceled, context.Canceled)
				}
				require.NoError(t, taken[0].Context().Err(), "callers left before the loss")
			}
			for believed := true; believed; {
				held := locks(t, work, true)
				believed = false
				for _, lock := range taken {
					if lock.Context().Err() == nil {
						believed = true
					}
				}
				if believed {
					require.GreaterOrEqual(t, held, n, "believed in a lock that the server gave away")
				}
			}
			for _, lock := range taken {
				<-lock.Lost()
				require.ErrorIs(t, lock.Release(), advisory.ErrLost)
			}
			proxy.Set(faultproxy.Pass)
			eventually(t, func() bool { return locks(t, work, true) == 0 })
			require.NoError(t, l.Do(t.Context(), agents.ID(1), func(ctx context.Context) error { return ctx.Err() }))
		})
	}
}

func TestTheLossOfAConnectionInABatchIsToldToItsHoldersAndTheTriesGoToAnother(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxLocks: 500})
		holder := w.acquire(l, 0)
		goOn := f.stall()
		const n = 200
		var waiters []pending
		for i := range n {
			waiters = append(waiters, w.beginAcquire(w.Context(), l, int64(i+1)))
		}
		bubble.Sleep(time.Second)
		require.Len(w, held(l), 1)
		assert.True(w, held(l)[0].Doubtful, "an answer is overdue")
		w.server.KillSessions()
		goOn()
		<-holder.Lost()
		require.ErrorIs(w, holder.Release(), advisory.ErrLost)
		for _, p := range waiters {
			lock := w.granted(p)
			assert.NotEqual(w, holder.PID(), lock.PID())
			w.release(lock)
		}
		assert.Empty(w, w.server.Locked())
	})
}
