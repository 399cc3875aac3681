package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

// A program's connection hooks may ignore their context.
func TestCloseDoesNotWaitForWhatHangsInConnecting(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for name, config := range map[string]func(cc *pgx.ConnConfig, hang func() error) advisory.Config{
			"DialFunc": func(cc *pgx.ConnConfig, hang func() error) advisory.Config {
				cc.DialFunc = func(_ context.Context, network, addr string) (net.Conn, error) {
					if err := hang(); err != nil {
						return nil, err
					}
					return net.Dial(network, addr)
				}
				return advisory.Config{ConnConfig: cc}
			},
			"BeforeConnect": func(cc *pgx.ConnConfig, hang func() error) advisory.Config {
				return advisory.Config{ConnConfig: cc, BeforeConnect: func(context.Context, *pgx.ConnConfig) error { return hang() }}
			},
		} {
			cc, err := pgx.ParseConfig(pgtest.DSN(t))
			require.NoError(t, err)
			var hangs atomic.Bool
			hung, release := make(chan struct{}, 100), make(chan struct{})
			l := open(t, config(cc, func() error {
				if !hangs.Load() {
					return nil
				}
				hung <- struct{}{}
				<-release
				return errors.New("released")
			}))
			lock, err := l.Acquire(t.Context(), agents.ID(1))
			require.NoError(t, err)
			hangs.Store(true)
			failed := make(chan error, 3)
			for i := range int64(3) { // one at least needs a connection
				go func() {
					lock, err := l.Acquire(t.Context(), agents.ID(2+i))
					if err == nil {
						<-lock.Lost()
						err = lock.Release()
					}
					failed <- err
				}()
			}
			<-hung
			closed := make(chan struct{})
			go func() {
				l.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(time.Minute):
				assert.Fail(t, "Close waits for "+name)
			}
			close(release)
			for range 3 {
				assert.ErrorIs(t, <-failed, advisory.ErrClosed)
			}
			assert.ErrorIs(t, lock.Release(), advisory.ErrLost)
		}
	})
}

// A server without room for a lock has none for a login.
func TestAWaitThatGetsNoConnectionBecauseTheLockTableIsFullSaysSo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other := w.open(advisory.Config{})
		l, f := w.openFaulty(advisory.Config{Wait: time.Minute})
		foreign, mine := w.acquire(other, 1), w.acquire(l, 2)
		synctest.Wait()
		start := time.Now()
		var full atomic.Bool
		full.Store(true)
		f.onAcquire = func() error {
			if full.Load() {
				return advisory.ErrLockTableFull
			}
			return nil
		}
		_, err := l.Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrLockTableFull)
		require.NotErrorIs(w, err, advisory.ErrTimeout)
		assert.Less(w, time.Since(start), time.Second)
		full.Store(false)
		bubble.Sleep(2 * time.Second)
		p := w.beginAcquire(w.Context(), l, 1)
		w.release(foreign)
		w.release(w.granted(p), mine)
	})
}

func TestAnErrorThatNamesNoHolderSaysWhy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other := w.open(advisory.Config{})
		l, f := w.openFaulty(advisory.Config{})
		short := l.With(advisory.Options{Wait: time.Second})
		foreign := w.acquire(other, 1)
		for _, slow := range []time.Duration{0, time.Second} { // the first is the control
			f.slowHolders.Store(int64(slow))
			_, timeout := short.Acquire(w.Context(), entity(1))
			require.ErrorIs(w, timeout, advisory.ErrTimeout)
			_, held := l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, held, advisory.ErrHeld)
			for _, err := range []error{timeout, held} {
				if slow == 0 {
					assert.Contains(w, err.Error(), "by backend")
					assert.NotContains(w, err.Error(), "not known")
				} else {
					assert.Contains(w, err.Error(), "its holder is unknown: the server did not answer within 250ms")
				}
			}
		}
		bubble.Sleep(time.Minute)
		w.release(foreign)
	})
}

func TestAnErrorWithoutAConnectionToAskWithSaysSo(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		other, l := w.open(advisory.Config{}), w.open(advisory.Config{MaxConns: 2})
		foreign := w.acquire(other, 1)
		wait := w.beginAcquire(w.Context(), l, 1) // on one connection
		mine := w.acquire(l, 2)                   // on the other
		_, err := l.With(advisory.Options{Wait: time.Second}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		assert.Contains(w, err.Error(), "its holder is unknown: no connection of the lock pool was free to ask")
		w.release(foreign)
		w.release(w.granted(wait), mine)
	})
}

func TestTheZeroLockerIsClosedAndTheZeroLockReleased(t *testing.T) {
	t.Parallel()
	var l advisory.Locker
	semaphore := namespace.Must(1, "agent").ID(1)
	for name, call := range map[string]func(l *advisory.Locker) error{
		"Acquire":     func(l *advisory.Locker) error { _, err := l.Acquire(t.Context(), semaphore); return err },
		"TryAcquire":  func(l *advisory.Locker) error { _, err := l.TryAcquire(t.Context(), semaphore); return err },
		"AcquireAll":  func(l *advisory.Locker) error { _, err := l.AcquireAll(t.Context(), semaphore, entity(2)); return err },
		"AcquireSlot": func(l *advisory.Locker) error { _, err := l.AcquireSlot(t.Context(), semaphore, 2); return err },
		"Do":          func(l *advisory.Locker) error { return l.Do(t.Context(), semaphore, nothing) },
		"DoOrSkip":    func(l *advisory.Locker) error { _, err := l.DoOrSkip(t.Context(), semaphore, nothing); return err },
	} {
		for _, l := range []*advisory.Locker{&l, l.With(advisory.Options{Label: "a copy"})} {
			require.ErrorIs(t, call(l), advisory.ErrClosed, name)
		}
	}
	assert.Zero(t, l.Stats())
	assert.Empty(t, held(&l))
	l.Close()

	var lock advisory.Lock
	require.ErrorIs(t, lock.Release(), advisory.ErrReleased)
	require.ErrorIs(t, context.Cause(lock.Context()), advisory.ErrReleased)
	assert.Empty(t, lock.Lost())
	assert.Empty(t, lock.Asked())
	assert.False(t, lock.Key().Valid())
	assert.Empty(t, lock.Keys())
	assert.Zero(t, lock.PID())
	assert.False(t, lock.Shared())
}

// blackHoles returns the addresses of servers that accept connections and never
// answer.
func blackHoles(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

// With several hosts each one has its own timeout, here 5 s for 31 of them: the wait
// has a bound of its own.
func TestAWaitEndsInTimeThoughManyHostsAreSilent(t *testing.T) {
	t.Parallel()
	const wait, bound = 6 * time.Second, 40 * time.Second
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		u, err := url.Parse(pgtest.DSN(t))
		require.NoError(t, err)
		proxy, err := faultproxy.New(t.Context(), u.Host)
		require.NoError(t, err)
		t.Cleanup(proxy.Close)
		via, err := proxy.URL(u.String())
		require.NoError(t, err)
		u, err = url.Parse(via)
		require.NoError(t, err)
		u.Host = strings.Join(append([]string{u.Host}, blackHoles(t, 30)...), ",")
		q := u.Query()
		q.Set("connect_timeout", "5") // a login on a busy machine can take seconds
		u.RawQuery = q.Encode()
		l := open(t, advisory.Config{DSN: u.String(), SessionTTL: time.Second, HandOverBudget: -1, Wait: wait, MaxConns: 20})
		shared := l.With(advisory.Options{Shared: true})
		_, err = shared.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		lock, err := l.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		if err = lock.Release(); err != nil { // a busy machine can take longer than the SessionTTL
			require.ErrorIs(t, err, advisory.ErrLost)
		}
		proxy.Set(faultproxy.Hold)
		defer proxy.Set(faultproxy.Pass)

		calls := map[string]func() error{
			"a key":       func() error { _, err := l.Acquire(t.Context(), agents.ID(3)); return err },
			"another key": func() error { _, err := l.Acquire(t.Context(), agents.ID(4)); return err },
			"a try":       func() error { _, err := l.TryAcquire(t.Context(), agents.ID(5)); return err },
			"a reader":    func() error { _, err := shared.Acquire(t.Context(), agents.ID(1)); return err },
			"all":         func() error { _, err := l.AcquireAll(t.Context(), agents.ID(6), agents.ID(7)); return err },
			"a slot":      func() error { _, err := l.AcquireSlot(t.Context(), agents.ID(8), 2); return err },
			"no wait": func() error {
				_, err := l.With(advisory.Options{Wait: time.Millisecond}).Acquire(t.Context(), agents.ID(9))
				return err
			},
		}
		var all sync.WaitGroup
		for name, call := range calls {
			all.Go(func() {
				start := time.Now()
				err := call()
				took := time.Since(start)
				t.Logf("%s: %v: %v", name, took.Round(time.Millisecond), err)
				assert.Error(t, err, name)
				assert.Less(t, took, bound, name)
			})
		}
		all.Wait()
	})
}

// The role's settings apply until a connection has set its own.
func TestALockerWorksForARoleWhoseTimeoutsEndEverything(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		admin := dbtest.Pool(t, server.DSN(""))
		_, err := admin.Exec(t.Context(), `CREATE ROLE app LOGIN; ALTER ROLE app SET statement_timeout = '1ms'; ALTER ROLE app SET lock_timeout = '1ms';
			ALTER ROLE app SET default_transaction_isolation = serializable; ALTER ROLE app SET default_transaction_read_only = on; ALTER ROLE app SET default_transaction_deferrable = on`)
		require.NoError(t, err)
		app := pgtest.As(t, server.DSN(""), "app")
		_, err = dbtest.Pool(t, app).Exec(t.Context(), "SELECT pg_sleep(1)")
		// Not its text: a timeout that ends in the moment in which its statement does cancels the next
		// one, whose error then names a user's request.
		require.Equal(t, sqlstate.QueryCanceled, sqlstate.Of(err), "the control: %v", err)

		l := open(t, advisory.Config{DSN: app, Wait: time.Minute})
		held := make([]*advisory.Lock, 4) // of several connections
		for i := range held {
			held[i], err = l.Acquire(t.Context(), agents.ID(int64(i)))
			require.NoError(t, err)
		}
		other, waited := open(t, advisory.Config{DSN: app, Wait: time.Minute}), make(chan error, 1)
		go func() {
			waited <- other.Do(t.Context(), agents.ID(0), func(ctx context.Context) error { return ctx.Err() })
		}()
		eventually(t, func() bool { return locks(t, admin, false) == 1 })
		for _, lock := range held {
			assert.NoError(t, lock.Release())
		}
		require.NoError(t, <-waited)
	})
}

// The lock table of a server is for all of its sessions. Ten processes that hold as many locks as they may by default leave room for a
// statement of another program that needs hundreds.
func TestTheDefaultMaxLocksLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	program, other := pgtest.Connect(t, server.DSN("")), pgtest.Connect(t, server.DSN(""))
	_, err := program.Exec(t.Context(), "CREATE TABLE event (at int) PARTITION BY LIST (at)")
	require.NoError(t, err)
	for i := range 300 {
		_, err = program.Exec(t.Context(), fmt.Sprintf("CREATE TABLE event_%d PARTITION OF event FOR VALUES IN (%d)", i, i))
		require.NoError(t, err)
	}
	var table int // locks that the server has room for
	require.NoError(t, program.QueryRow(t.Context(), `SELECT current_setting('max_locks_per_transaction')::int *
		(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)`).Scan(&table))
	const statement = "SELECT count(*) FROM event"

	for process := range 10 {
		l := open(t, advisory.Config{DSN: server.DSN(""), LocksPerConn: 1000, MaxConns: 2})
		most := l.Stats().MaxLocks
		require.Equal(t, table/20, most)
		for i := range most {
			_, err := l.TryAcquire(t.Context(), agents.ID(int64(process*100_000+i)))
			require.NoError(t, err)
		}
		_, err := l.TryAcquire(t.Context(), agents.ID(int64(process*100_000+most)))
		require.ErrorIs(t, err, advisory.ErrLockTableFull)
	}
	_, err = program.Exec(t.Context(), statement)
	require.NoError(t, err)

	// The control: a lock table can be too full for the statement.
	for i := 0; err == nil; i += 100 {
		_, err = other.Exec(t.Context(), "SELECT pg_advisory_lock(99, i) FROM generate_series($1::int, $1::int + 99) AS i", i)
	}
	var full *pgconn.PgError
	require.ErrorAs(t, err, &full)
	require.Equal(t, "53200", full.Code)
	_, err = program.Exec(t.Context(), statement)
	require.ErrorAs(t, err, &full)
	require.Equal(t, "53200", full.Code)
}
