//go:build integration

package integration

import (
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
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
