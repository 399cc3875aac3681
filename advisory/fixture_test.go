package advisory_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/namespace"
)

// A world is a server and the processes on it, in a bubble: time stands still
// while anybody can run.
type world struct {
	*testing.T
	server       *memory.Server
	locksPerConn int // of each Locker
}

// inBubble runs a test in both modes.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	lockmode.InTurn(t, func(t *testing.T) { t.Helper(); inBubbleOf(t, lockmode.Of(t).LocksPerConn, test) })
}

// many is more than any test has locks on one connection.
const many = 10_000

// inBubbleOf runs a test in one mode.
func inBubbleOf(t *testing.T, locksPerConn int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&world{T: t, server: memory.NewServer(), locksPerConn: locksPerConn}) })
}

// openOn opens the Locker of one more process on a server.
func openOn(server *memory.Server, config advisory.Config) (*advisory.Locker, error) {
	source := server.Source(cmp.Or(config.ApplicationName, "pglatch"))
	return advisory.Open(session.WithSource(context.Background(), source), config)
}

// config is that of a Locker of the world's mode.
func (w *world) config(config advisory.Config) advisory.Config {
	return lockmode.Mode{LocksPerConn: w.locksPerConn}.Config(config)
}

// open returns the Locker of one more process. At the end of the test nothing may
// be left of its calls.
func (w *world) open(config advisory.Config) *advisory.Locker {
	w.Helper()
	l, err := openOn(w.server, w.config(config))
	require.NoError(w, err)
	w.Cleanup(func() {
		w.assertIdle(l)
		l.Close()
		assert.Zero(w, l.Stats().Sessions)
	})
	return l
}

// inProcess is the sessions of one of several Lockers of one process, which know of each other.
func (w *world) inProcess(applicationName string) session.Source {
	return &knownSource{w.server.Source(applicationName), w.database()}
}

// database names the server, for Lockers of one process.
func (w *world) database() string { return fmt.Sprintf("memory at %p", w.server) }

// A knownSource names its database.
type knownSource struct {
	session.Source
	database string
}

func (s *knownSource) Stats() session.Stats {
	stats := s.Source.Stats()
	stats.Database = s.database
	return stats
}

// openTogether is open for one more Locker of one process.
func (w *world) openTogether(config advisory.Config) *advisory.Locker {
	w.Helper()
	source := w.inProcess("pglatch")
	l, err := advisory.Open(session.WithSource(context.Background(), source), w.config(config))
	require.NoError(w, err)
	w.Cleanup(func() {
		w.assertIdle(l)
		l.Close()
	})
	return l
}

// assertIdle waits until nothing more happens at this time, and finds nothing held,
// wanted or in use.
func (w *world) assertIdle(l *advisory.Locker) {
	w.Helper()
	synctest.Wait()
	s := l.Stats()
	assert.Zero(w, s.Held, "locks held")
	assert.Zero(w, s.Waiting, "requests waiting")
	assert.Zero(w, s.SessionsInUse, "sessions in use")
}

// acquire returns the lock on entity i.
func (w *world) acquire(l *advisory.Locker, i int64) *advisory.Lock {
	w.Helper()
	lock, err := l.Acquire(w.Context(), entity(i))
	require.NoError(w, err)
	return lock
}

// fill takes locks until the connection that has one lock is full, so that the next goes to
// another connection, and returns what gives back those that are not lost.
func (w *world) fill(l *advisory.Locker) (empty func()) {
	w.Helper()
	locks := make([]*advisory.Lock, w.locksPerConn-1)
	for i := range locks {
		locks[i] = w.acquire(l, 9000+int64(i))
	}
	return func() {
		for _, lock := range locks {
			if err := lock.Release(); err != nil {
				require.ErrorIs(w, err, advisory.ErrLost)
			}
		}
	}
}

// release gives locks back without a loss.
func (w *world) release(locks ...*advisory.Lock) {
	w.Helper()
	for _, lock := range locks {
		require.NoError(w, lock.Release())
	}
}

// An outcome is what a call returned.
type outcome struct {
	lock *advisory.Lock
	err  error
	at   time.Time
}

// A pending is a call in the background.
type pending chan outcome

// begin makes a call in the background and lets it come to where it waits.
func (w *world) begin(call func() (*advisory.Lock, error)) pending {
	p := make(pending, 1)
	go func() {
		lock, err := call()
		p <- outcome{lock, err, time.Now()}
	}()
	synctest.Wait()
	return p
}

// beginAcquire begins to acquire the lock on entity i.
func (w *world) beginAcquire(ctx context.Context, l *advisory.Locker, i int64) pending {
	return w.begin(func() (*advisory.Lock, error) { return l.Acquire(ctx, entity(i)) })
}

// assertWaits checks that the call has not returned.
func (w *world) assertWaits(p pending) {
	w.Helper()
	synctest.Wait()
	assert.Empty(w, p, "the call should wait")
}

// granted waits for the call's lock.
func (w *world) granted(p pending) *advisory.Lock {
	w.Helper()
	o := <-p
	require.NoError(w, o.err)
	return o.lock
}

// now returns the call's lock, which must have come by now.
func (w *world) now(p pending) *advisory.Lock {
	w.Helper()
	synctest.Wait()
	require.Len(w, p, 1, "the call should have returned")
	return w.granted(p)
}

func entity(i int64) namespace.Key { return namespace.Must(1, "agent").ID(i) }

func held(l *advisory.Locker) (locks []advisory.HeldLock) {
	for h := range l.Held() {
		locks = append(locks, h)
	}
	return locks
}

// pidOf returns the session that holds entity i.
func (w *world) pidOf(i int64) uint32 {
	w.Helper()
	holders := w.server.Holders(entity(i))
	require.Len(w, holders, 1)
	return holders[0].PID
}

var shared = advisory.Options{Shared: true}

// nothing is work that does nothing.
func nothing(context.Context) error { return nil }
