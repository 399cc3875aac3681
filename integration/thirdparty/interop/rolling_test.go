package interop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// The keys of docs/how-to/change-a-key.md's rolling change: the number that was there, and the one that is to be.
var (
	oldKey = namespace.SingleRaw(12345)
	jobs   = namespace.Must(91, "jobs")
	newKey = jobs.ID(1)
)

// A replica runs work under its lock; it waits for that.
type replica func(ctx context.Context, work func() error) error

// handWritten is a replica as it was: SELECT pg_advisory_lock(12345).
func handWritten(t *testing.T, dsn string) replica {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	var one sync.Mutex // the connection's
	return func(ctx context.Context, work func() error) error {
		one.Lock()
		defer one.Unlock()
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(12345)"); err != nil {
			return err
		}
		err := work()
		_, unlockErr := conn.Exec(ctx, "SELECT pg_advisory_unlock(12345)")
		return errors.Join(err, unlockErr)
	}
}

// onKeys is a replica that has all keys while it works.
func onKeys(keys ...namespace.Key) func(t *testing.T, dsn string) replica {
	return func(t *testing.T, dsn string) replica {
		t.Helper()
		locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Wait: patience})
		require.NoError(t, err)
		t.Cleanup(locks.Close)
		return func(ctx context.Context, work func() error) error {
			lock, err := locks.AcquireAll(ctx, keys...)
			if err != nil {
				return err
			}
			return errors.Join(work(), lock.Release())
		}
	}
}

// The versions of the program, in the order in which they are rolled out.
var (
	version1 = handWritten
	version2 = onKeys(oldKey)
	version3 = onKeys(oldKey, newKey)
	version4 = onKeys(newKey)
)

// excludes tells whether b stays out while a works, and a while b does.
func excludes(t *testing.T, dsn string, a, b replica) bool {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	for _, pair := range [][2]replica{{a, b}, {b, a}} {
		first, second := pair[0], pair[1]
		working, leave := make(chan struct{}), make(chan struct{})
		var inside, overlapped atomic.Bool
		ended := make(chan error, 2)
		go func() {
			ended <- first(t.Context(), func() error {
				inside.Store(true)
				close(working)
				<-leave
				inside.Store(false)
				return nil
			})
		}()
		<-working
		entered := make(chan struct{})
		go func() {
			ended <- second(t.Context(), func() error {
				overlapped.Store(inside.Load())
				close(entered)
				return nil
			})
		}()
		await.Until(t, patience, func() bool { // it waits, or it is inside
			select {
			case <-entered:
				return true
			default:
			}
			_, waiting, err := pgtest.CountLocks(t.Context(), conn)
			return err == nil && waiting > 0
		})
		close(leave)
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		if overlapped.Load() {
			return false
		}
	}
	return true
}

func TestAKeyIsChangedWithoutAMomentInWhichTwoReplicasWork(t *testing.T) {
	t.Parallel()
	steps := []struct {
		name     string
		old, new func(*testing.T, string) replica
	}{
		{"from hand-written SQL to pglatch on its key", version1, version2},
		{"from the old key to both", version2, version3},
		{"from both keys to the new one", version3, version4},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			require.True(t, excludes(t, dsn, step.old(t, dsn), step.new(t, dsn)))
			requireNoOverlap(t, step.old(t, dsn), step.new(t, dsn), step.old(t, dsn), step.new(t, dsn))
		})
	}
}

// The control: each step that is left out.
func TestAKeyThatIsChangedInOneStepLetsTwoReplicasWork(t *testing.T) {
	t.Parallel()
	for name, step := range map[string][2]func(*testing.T, string) replica{
		"from hand-written SQL to the new key": {version1, version4},
		"from the old key to the new one":      {version2, version4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			require.False(t, excludes(t, dsn, step[0](t, dsn), step[1](t, dsn)))
		})
	}
}

// requireNoOverlap has the replicas of a fleet in the middle of a step work at once, many times.
func requireNoOverlap(t *testing.T, fleet ...replica) {
	t.Helper()
	const rounds = 20
	var inside, overlaps, done atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, len(fleet))
	for _, r := range fleet {
		all.Go(func() {
			for range rounds {
				err := r(t.Context(), func() error {
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					done.Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Zero(t, overlaps.Load())
	require.EqualValues(t, len(fleet)*rounds, done.Load())
}
