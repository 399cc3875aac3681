//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/netns"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

func throughProxy(t *testing.T, dsn string) (*faultproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), u.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	via, err := proxy.URL(dsn)
	require.NoError(t, err)
	return proxy, via
}

func TestALockBehindASilentNetworkIsLostBeforeAnotherCanHaveIt(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		for name, mode := range map[string]faultproxy.Mode{
			"both ways": faultproxy.Hold, "to the server": faultproxy.HoldToServer, "to the client": faultproxy.HoldToClient,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				proxy, via := throughProxy(t, dsn)
				cut, other := open(t, via, 2*time.Second), open(t, dsn, session.DefaultTTL)
				lock := acquire(t, cut, agents.ID(1))
				proxy.Set(mode)
				successor := acquire(t, other, agents.ID(1)) // the server ended the silent session
				require.Error(t, lock.Context().Err(), "two believe that they hold the lock")
				requireLost(t, lock, patience)

				proxy.Set(faultproxy.Pass)
				assert.Error(t, lock.Context().Err())
				_, err := cut.TryAcquire(t.Context(), agents.ID(1))
				require.ErrorIs(t, err, advisory.ErrHeld, "the Locker works again")
				require.NoError(t, successor.Release())
				require.NoError(t, acquire(t, cut, agents.ID(1)).Release())
			})
		}
	})
}

// What docs/reference/fail-over-times.md says of a reset that reaches only the server: two believe that they hold the lock
// until the holder's deadline.
func TestAResetThatReachesOnlyTheServerFreesTheLockAndTheHolderKnowsByItsDeadline(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		const ttl = 6 * time.Second
		dsn := pgtest.DSN(t)
		proxy, via := throughProxy(t, dsn)
		cut, other := open(t, via, ttl), open(t, dsn, session.DefaultTTL)
		lock := acquire(t, cut, agents.ID(1))
		proxy.Set(faultproxy.Hold)
		start := time.Now()
		proxy.ResetServer()
		successor := acquire(t, other, agents.ID(1))
		t.Logf("free after %v; the holder knows: %v", time.Since(start), lock.Context().Err() != nil)
		requireLost(t, lock, patience) // the network is still silent
		t.Logf("the holder knew after %v", time.Since(start))
		require.NoError(t, successor.Release())
	})
}

func TestASilentNetworkDelaysACallByItsBoundOnly(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		proxy, via := throughProxy(t, pgtest.DSN(t))
		l := open(t, via, session.DefaultTTL)
		require.NoError(t, acquire(t, l, agents.ID(1)).Release()) // the control: while the network passes, the call gets the lock
		idle := time.Now()
		await.Until(t, patience, func() bool { return time.Since(idle) > 1100*time.Millisecond })
		proxy.Set(faultproxy.Hold)

		start := time.Now() // on an idle connection, which is asked whether it lives
		_, err := l.With(advisory.Options{Wait: 500 * time.Millisecond}).Acquire(t.Context(), agents.ID(1))
		require.Error(t, err)
		t.Logf("a wait of 500ms ended after %v: %v", time.Since(start), err)
		assert.Less(t, time.Since(start), 10*time.Second)

		start = time.Now() // on none: one has to be made
		_, err = l.With(advisory.Options{Wait: 500 * time.Millisecond}).Acquire(t.Context(), agents.ID(1))
		require.Error(t, err)
		t.Logf("a wait of 500ms ended after %v: %v", time.Since(start), err)
		assert.Less(t, time.Since(start), 10*time.Second)

		start = time.Now()
		l.Close()
		t.Logf("Close took %v", time.Since(start))
	})
}

func TestTheLockOfAStoppedProcessIsFreeAndItsFirstActFindsItLost(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		holder := start(t, "act", dsn)
		holder.Says("held")
		// The control: a plain lock stays with its stopped holder.
		plain := start(t, "raw", dsn)
		plain.Says("held")
		plain.Signal(syscall.SIGSTOP)

		holder.Signal(syscall.SIGSTOP)
		l := open(t, dsn, session.DefaultTTL)
		lock := acquire(t, l, agents.ID(1))
		<-time.After(aPause)
		var free bool
		require.NoError(t, pgtest.Connect(t, dsn).QueryRow(t.Context(), "SELECT pg_try_advisory_lock(99, 1)").Scan(&free))
		assert.False(t, free, "the plain lock was freed too")

		holder.Signal(syscall.SIGCONT)
		act := holder.Says("pause")
		assert.Contains(t, act, "context canceled")
		assert.Contains(t, act, "lost after")
		assert.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release())
	})
}

func TestTheLockOfAKilledHolderIsFree(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		holder := start(t, "hold", dsn)
		holder.Says("held")
		l := open(t, dsn, session.DefaultTTL)
		_, err := l.TryAcquire(t.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		holder.Signal(syscall.SIGKILL)
		require.NoError(t, acquire(t, l, agents.ID(1)).Release())
	})
}

func TestTheQueueMovesOnPastAKilledWaiter(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		judge := pgtest.Connect(t, dsn)
		l := open(t, dsn, session.DefaultTTL)
		lock := acquire(t, l, agents.ID(1))
		first := start(t, "wait", dsn)
		first.Says("waiting")
		requireLocks(t, judge, 1, 1)
		second := start(t, "wait", dsn)
		requireLocks(t, judge, 1, 2)
		first.Signal(syscall.SIGKILL)
		require.NoError(t, lock.Release())
		second.Says("held")
		requireLocks(t, judge, 1, 0) // nothing stays with the dead one
		second.Signal(syscall.SIGKILL)
		require.NoError(t, acquire(t, l, agents.ID(1)).Release())
	})
}

func TestABlackHoleEndsALockForEverAlsoAfterItHeals(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		n := netns.New(t)
		server, local := n.StartServer(t)
		holder := start(t, "hold briefly", server.DSN(""), "ip", "netns", "exec", n.Client)
		holder.Says("held")
		other := open(t, local, session.DefaultTTL)

		n.Forward(t, false)
		lock := acquire(t, other, agents.ID(1))
		assert.Contains(t, holder.Says("lost"), "no answer from the server")
		n.Forward(t, true)
		judge := pgtest.Connect(t, local)
		for range 10 { // a second
			holder.Says("not held")
			granted, _ := locks(t, judge)
			assert.Equal(t, 1, granted)
		}
		assert.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release())
		holder.Says("not held")
		granted, waiting := locks(t, judge)
		assert.Zero(t, granted+waiting)
	})
}

// looks are the ways to ask whether a lock is held; each is prepared before the pause.
var looks = map[string]func(lock *advisory.Lock) (held func() bool){
	"Err": func(l *advisory.Lock) func() bool { ctx := l.Context(); return func() bool { return ctx.Err() == nil } },
	"Done": func(l *advisory.Lock) func() bool {
		ctx := l.Context()
		return func() bool { return isOpen(ctx.Done()) }
	},
	"Lost": func(l *advisory.Lock) func() bool { return func() bool { return isOpen(l.Lost()) } },
	"Value": func(l *advisory.Lock) func() bool {
		ctx := context.WithValue(l.Context(), lookKey{}, 1)
		return func() bool { return ctx.Err() == nil }
	},
	"derived": func(l *advisory.Lock) func() bool {
		ctx, cancel := context.WithTimeout(l.Context(), time.Hour)
		context.AfterFunc(ctx, cancel)
		return func() bool { return ctx.Err() == nil }
	},
}

type lookKey struct{}

func isOpen(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return false
	default:
		return true
	}
}

// lookAfterAPause looks all the time, so that it is the first to run after a pause. It
// says what its first look after one found, and how long it took to find the loss.
func lookAfterAPause(look func(*advisory.Lock) func() bool) func(context.Context, string) error {
	return func(ctx context.Context, dsn string) error {
		l, err := childLocker(ctx, dsn, childTTL)
		if err != nil {
			return err
		}
		lock, err := l.Acquire(ctx, agents.ID(1))
		if err != nil {
			return err
		}
		held := look(lock)
		last := time.Now() // before anybody can stop it
		fmt.Println("held")
		for {
			woken := time.Now()
			if woken.Sub(last) < childTTL {
				last = woken
				runtime.Gosched()
				continue
			}
			first := held()
			for held() {
				runtime.Gosched()
			}
			fmt.Println("pause", first, time.Since(woken).Microseconds())
			return nil
		}
	}
}

func TestTheFirstLookAfterAStopFindsTheLossAndADerivedContextIsToldSoon(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		for name := range looks {
			t.Run(name, func(t *testing.T) {
				dsn := pgtest.DSN(t)
				holder := start(t, "look "+name, dsn)
				holder.Says("held")
				holder.Signal(syscall.SIGSTOP)
				l := open(t, dsn, session.DefaultTTL)
				lock := acquire(t, l, agents.ID(1)) // the server ended the session of the one who is stopped
				began := time.Now()
				await.Until(t, patience, func() bool { return time.Since(began) > childTTL })
				holder.Signal(syscall.SIGCONT)
				var first bool
				var microseconds int64
				_, err := fmt.Sscanf(holder.Says("pause"), "pause %t %d", &first, &microseconds)
				require.NoError(t, err)
				t.Logf("the first look said %t; the loss was found after %v", first, time.Duration(microseconds)*time.Microsecond)
				if name != "derived" {
					assert.False(t, first, "the first look said that the lock is held")
				}
				require.NoError(t, lock.Release())
			})
		}
	})
}
