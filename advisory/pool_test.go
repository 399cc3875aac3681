package advisory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestFiveHundredWaitersOnFourConnectionsAreServedInOrder(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		const waiters = 500
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 4, Wait: advisory.NoTimeout})
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			order []int
		)
		for i := range waiters {
			wg.Go(func() {
				err := l.Do(t.Context(), agents.ID(1), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			eventually(t, func() bool { return l.Stats().Waiting == i+1 })
		}
		require.LessOrEqual(t, l.Stats().SessionsInUse, 1, "local waiters use no connection")
		require.NoError(t, lock.Release())
		wg.Wait()
		require.Len(t, order, waiters)
		require.True(t, slices.IsSorted(order))
	})
}

func TestNestedLocksOnAFullPoolFailAtOnce(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 1, Wait: advisory.NoTimeout})
		err := l.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
			err := l.Do(ctx, agents.ID(2), func(context.Context) error { return nil })
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			exhausted, ok := errors.AsType[*advisory.PoolExhaustedError](err)
			require.True(t, ok)
			require.Equal(t, "agent/1", exhausted.Outer[0].String())
			_, err = l.AcquireAll(ctx, agents.ID(2), agents.ID(3))
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			return ctx.Err()
		})
		require.NoError(t, err)
		all, err := l.AcquireAll(t.Context(), agents.ID(3), agents.ID(2))
		require.NoError(t, err, "several keys need one connection")
		require.NoError(t, all.Release())
	})
}

func TestAFullPoolIsNotCalledAHeldLock(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 1})
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = l.With(advisory.Options{Wait: 20 * time.Millisecond}).Acquire(t.Context(), agents.ID(2))
		require.ErrorIs(t, err, advisory.ErrPoolExhausted)
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.NotErrorIs(t, err, advisory.ErrHeld)
		require.NoError(t, lock.Release())
	})
}

func TestACycleOfTwoGoroutinesFailsAtOnce(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), Wait: advisory.NoTimeout})
		bothHeld := make(chan struct{})
		var held, wg sync.WaitGroup
		held.Add(2)
		go func() { held.Wait(); close(bothHeld) }()
		errs := make(chan error, 2)
		for i := range int64(2) {
			wg.Go(func() {
				errs <- l.Do(t.Context(), agents.ID(i), func(ctx context.Context) error {
					held.Done()
					<-bothHeld
					return l.Do(ctx, agents.ID(1-i), func(context.Context) error { return nil })
				})
			})
		}
		wg.Wait()
		refused := refusedOf(t, errs)
		require.ErrorContains(t, refused, "agent/0")
		require.ErrorContains(t, refused, "agent/1")
	})
}

// refusedOf returns the error of the one of two calls that closed a circle. Either may be the first to return: the
// other one can have its lock, and be through, before the one that was refused runs again.
func refusedOf(t *testing.T, errs <-chan error) error {
	t.Helper()
	refused, other := <-errs, <-errs
	if refused == nil {
		refused, other = other, refused
	}
	require.ErrorIs(t, refused, advisory.ErrDeadlock)
	require.NoError(t, other, "the other one gets its lock")
	return refused
}

// TestACycleThroughTwoProcessesEndsInATimeout is its control.
func TestACycleThroughTwoLockersOfOneProcessIsRefused(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		config := advisory.Config{DSN: dsn, Wait: advisory.NoTimeout}
		a, b := open(t, config), open(t, config)
		one, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := b.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		inner := func(l *advisory.Locker, outer *advisory.Lock, i int64) error {
			err := l.Do(outer.Context(), agents.ID(i), func(context.Context) error { return nil })
			return errors.Join(err, outer.Release())
		}
		errs := make(chan error, 2)
		go func() { errs <- inner(a, one, 2) }()
		go func() { errs <- inner(a, two, 1) }() // and not with the Locker that it holds 2 with
		refusedOf(t, errs)
	})
}

func TestOneKeyInTwoLockersOfOneProcess(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn})
		elsewhere := open(t, advisory.Config{DSN: pgtest.DSN(t)}) // another database of the server
		outer, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = b.Acquire(outer.Context(), agents.ID(1))
		require.ErrorIs(t, err, advisory.ErrReentrant)
		ran, err := b.DoOrSkip(outer.Context(), agents.ID(1), func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.False(t, ran)
		ran, err = elsewhere.DoOrSkip(outer.Context(), agents.ID(1), func(context.Context) error { return nil })
		require.NoError(t, err)
		assert.True(t, ran)
		require.NoError(t, outer.Release())
	})
}

func TestACycleThroughTwoProcessesEndsInATimeout(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b := open(t, advisory.Config{DSN: dsn}).Elsewhere(), open(t, advisory.Config{DSN: dsn})
		one, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := b.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		errs := make(chan error, 2)
		wait := func(l *advisory.Locker, outer *advisory.Lock, i int64) {
			_, err := l.With(advisory.Options{Wait: 3 * time.Second}).Acquire(outer.Context(), agents.ID(i))
			for errors.Is(err, advisory.ErrUnavailable) { // a busy machine made no second connection in time
				_, err = l.With(advisory.Options{Wait: 3 * time.Second}).Acquire(outer.Context(), agents.ID(i))
			}
			errs <- err
		}
		go wait(a, one, 2)
		go wait(b, two, 1)
		require.ErrorIs(t, <-errs, advisory.ErrTimeout)
		require.ErrorIs(t, <-errs, advisory.ErrTimeout)
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
	})
}

func TestTheOuterContextPassedByMistakeIsExplained(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
		outer, short := t.Context(), advisory.Options{Wait: 20 * time.Millisecond}
		err := l.Do(outer, agents.ID(1), func(context.Context) error {
			return l.With(short).Do(outer, agents.ID(1), func(context.Context) error { return nil })
		})
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.ErrorContains(t, err, "this process")
		require.ErrorContains(t, err, "Lock.Context")
	})
}
