package advisory_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestReadersThatComeOneByOneNeedOneConnection(t *testing.T) {
	t.Parallel()
	for _, budget := range []time.Duration{0, -1} {
		inBubble(t, func(w *world) {
			l := w.open(advisory.Config{MaxConns: 1, HandOverBudget: budget})
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					bubble.Sleep(time.Duration(i) * 11 * time.Millisecond) // longer than the budget
					ran, err := l.With(shared).DoOrSkip(w.Context(), entity(1), func(context.Context) error {
						bubble.Sleep(time.Second)
						return nil
					})
					assert.NoError(w, err)
					assert.True(w, ran)
				})
			}
			bubble.Sleep(500 * time.Millisecond)
			assert.Len(w, w.server.Holders(entity(1)), 1)
			assert.Equal(w, 20, l.Stats().Held)
			wg.Wait()
		})
	}
}

// Each reader holds the key for longer than a wait step, and some reader holds it at any moment.
func TestAWriterGetsItsTurnAmongReadersOfOtherProcessesThatNeverPause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		const hold = 1200 * time.Millisecond
		ctx, stop := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		for process := range 2 {
			l := w.open(advisory.Config{Wait: time.Minute})
			for i := range 2 {
				wg.Go(func() {
					bubble.Sleep(time.Duration(2*i+process) * hold / 4)
					for ctx.Err() == nil {
						assert.NoError(w, l.With(shared).Do(w.Context(), entity(1), func(context.Context) error {
							bubble.Sleep(hold)
							return nil
						}))
					}
				})
			}
		}
		writer := w.open(advisory.Config{Wait: time.Minute})
		bubble.Sleep(5 * time.Second)
		for range 10 {
			start := time.Now()
			w.release(w.acquire(writer, 1))
			assert.LessOrEqual(w, time.Since(start), 3*hold)
			bubble.Sleep(hold)
		}
		stop()
		wg.Wait()
	})
}

func TestWaitersForASlotGetTheirShareBesideNewcomers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		newcomers, waiters := w.open(advisory.Config{MaxConns: 40}), w.open(advisory.Config{MaxConns: 40})
		end := time.Now().Add(time.Minute)
		var wg sync.WaitGroup
		var grants [2]atomic.Int64
		for i, l := range []*advisory.Locker{newcomers, waiters} {
			for range 2 {
				wg.Go(func() {
					for time.Now().Before(end) {
						lock, err := l.AcquireSlot(w.Context(), entity(1), 1)
						if !assert.NoError(w, err) {
							return
						}
						bubble.Sleep(2 * time.Millisecond)
						assert.NoError(w, lock.Release())
						grants[i].Add(1)
					}
				})
			}
			bubble.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		one, two := grants[0].Load(), grants[1].Load()
		share := float64(two) / float64(one+two)
		assert.InDelta(w, 0.5, share, 0.1, "%d and %d", one, two)
	})
}

func TestAKeyIsFreeForASkipRightAfterAnOwnWaitForItGaveUp(t *testing.T) {
	t.Parallel()
	for _, options := range []advisory.Options{{}, shared} {
		inBubble(t, func(w *world) {
			l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
			for range 20 {
				foreign := w.acquire(other, 1)
				ctx, cancel := context.WithCancel(w.Context())
				p := w.beginAcquire(ctx, l, 1)
				bubble.Sleep(20 * time.Millisecond)
				w.release(foreign)
				cancel()
				if o := <-p; o.err == nil {
					w.release(o.lock)
				}
				ran, err := l.With(options).DoOrSkip(w.Context(), entity(1), nothing)
				require.NoError(w, err)
				assert.True(w, ran)

				foreign = w.acquire(other, 1)
				ctx, cancel = context.WithCancel(w.Context())
				p = w.beginAcquire(ctx, l, 1)
				bubble.Sleep(20 * time.Millisecond)
				cancel()
				require.Error(w, (<-p).err)
				w.release(foreign)
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(1), nothing)
				require.NoError(w, err)
				assert.True(w, ran)
			}
			synctest.Wait()
		})
	}
}

func TestErrorsNameTheHolderOfTheKeyAndNotWhoWaitsFirst(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for _, c := range []struct {
			name   string
			shared bool
		}{{"among writers", false}, {"a reader behind a writer", true}} {
			t.Run(c.name, func(t *testing.T) {
				dsn := pgtest.DSN(t)
				key, work := agents.ID(42), dbtest.Pool(t, dsn)
				named := func(name string, shared bool) *advisory.Locker {
					return open(t, advisory.Config{DSN: dsn, ApplicationName: name}).With(advisory.Options{Shared: shared})
				}
				lock, err := named("holder", c.shared).Acquire(t.Context(), key)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				first := named("first", false).With(advisory.Options{Wait: advisory.NoTimeout})
				go func() {
					defer close(ended)
					_, _ = first.Acquire(ctx, key)
				}()
				eventually(t, func() bool { return locks(t, work, true) == 2 }) // the second is the turnstile

				late := named("late", c.shared)
				var held *advisory.HeldError
				eventually(t, func() bool { // a busy machine does not always say who
					_, err = late.TryAcquire(t.Context(), key)
					return errors.As(err, &held) && held.Holder != nil
				})
				require.Equal(t, "holder", held.Holder.ApplicationName)
				require.Equal(t, lock.PID(), held.Holder.PID)

				var timeout *advisory.TimeoutError
				eventually(t, func() bool {
					_, err = late.With(advisory.Options{Shared: c.shared, Wait: time.Second}).Acquire(t.Context(), key)
					return errors.As(err, &timeout) && timeout.Holder != nil
				})
				require.Equal(t, "holder", timeout.Holder.ApplicationName)
				require.Equal(t, lock.PID(), timeout.Holder.PID)
				cancel()
				<-ended
			})
		}
	})
}

// begin begins a transaction that ends with the test.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// started runs a call of which the test awaits the end.
func started(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func requireWaiting(t *testing.T, done <-chan error, who string) {
	t.Helper()
	select {
	case err := <-done:
		require.FailNow(t, "did not wait: "+who, "it returned %v", err)
	default:
	}
}

// stepsPass waits until waits at the server have lost their place in its queue.
func stepsPass(t *testing.T, l *advisory.Locker) {
	t.Helper()
	from := l.Stats().WaitSteps
	eventually(t, func() bool { return l.Stats().WaitSteps >= from+2 })
}

// A scene is a lock that a transaction holds, and a writer of a Locker that waits for it.
type scene struct {
	work   *pgxpool.Pool
	first  pgx.Tx
	writer *advisory.Locker
	lock   <-chan *advisory.Lock
	queued <-chan error
}

func newScene(t *testing.T, first advisory.TxOptions) scene {
	t.Helper()
	dsn := pgtest.DSN(t)
	s := scene{work: dbtest.Pool(t, dsn), writer: open(t, advisory.Config{DSN: dsn, Wait: advisory.NoTimeout})}
	s.first = begin(t, s.work)
	require.NoError(t, advisory.LockTx(t.Context(), s.first, first, agents.ID(1)))
	locked := make(chan *advisory.Lock, 1)
	s.lock = locked
	s.queued = started(func() error {
		lock, err := s.writer.Acquire(t.Context(), agents.ID(1))
		locked <- lock
		return err
	})
	eventually(t, func() bool { return locks(t, s.work, true) == 2 && locks(t, s.work, false) == 1 }) // the second is the turnstile
	return s
}

func TestATransactionDoesNotPassALockersWriterThatWaits(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for name, options := range map[string]advisory.TxOptions{"a reader": {Shared: true}, "a writer": {}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, late, try := newScene(t, options), options, options
				late.Wait, try.Try = advisory.NoTimeout, true
				tx, tries := begin(t, s.work), begin(t, s.work)
				done := started(func() error { return advisory.LockTx(t.Context(), tx, late, agents.ID(1)) })
				eventually(t, func() bool { return locks(t, s.work, false) == 2 })
				stepsPass(t, s.writer)
				requireWaiting(t, done, name+" that came later")
				require.ErrorIs(t, advisory.LockTx(t.Context(), tries, try, agents.ID(1)), advisory.ErrHeld)
				require.NoError(t, s.first.Commit(t.Context()))
				require.NoError(t, <-s.queued)
				requireWaiting(t, done, name+" that came later")
				require.NoError(t, (<-s.lock).Release())
				require.NoError(t, <-done)
			})
		}
	})
}

// The control: what is seen above, if a reader goes past the turnstile.
func TestAReaderInPlainSQLPassesALockersWriterThatWaits(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		s := newScene(t, advisory.TxOptions{Shared: true})
		tx := begin(t, s.work)
		_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock_shared(1, 1)")
		require.NoError(t, err)
		requireWaiting(t, s.queued, "the writer")
		require.NoError(t, s.first.Commit(t.Context()))
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-s.queued)
		require.NoError(t, (<-s.lock).Release())
	})
}

func TestLockersReadersDoNotPassATransactionThatWaitsAsAWriter(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		work := dbtest.Pool(t, dsn)
		readers := open(t, advisory.Config{DSN: dsn}).With(advisory.Options{Shared: true, Wait: advisory.NoTimeout})
		others := open(t, advisory.Config{DSN: dsn}).With(advisory.Options{Shared: true, Wait: advisory.NoTimeout})
		first, err := readers.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		joined, err := readers.TryAcquire(t.Context(), agents.ID(1))
		require.NoError(t, err, "the control: readers join while no writer waits")
		require.NoError(t, joined.Release())

		tx, tries := begin(t, work), begin(t, work)
		done := started(func() error {
			return advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(1))
		})
		eventually(t, func() bool { return locks(t, work, true) == 2 && locks(t, work, false) == 1 })
		eventually(t, func() bool { // until the first of them has to ask
			lock, err := readers.TryAcquire(t.Context(), agents.ID(1))
			if err == nil {
				err = lock.Release()
			}
			return errors.Is(err, advisory.ErrHeld)
		})
		late := make(chan *advisory.Lock, 1)
		queued := started(func() error {
			lock, err := others.Acquire(t.Context(), agents.ID(1))
			late <- lock
			return err
		})
		eventually(t, func() bool { return locks(t, work, false) == 2 })
		stepsPass(t, others)
		requireWaiting(t, queued, "a reader that came later")
		requireWaiting(t, done, "the writer")
		require.ErrorIs(t, advisory.LockTx(t.Context(), tries, advisory.TxOptions{Shared: true, Try: true}, agents.ID(1)), advisory.ErrHeld)

		require.NoError(t, first.Release())
		require.NoError(t, <-done)
		requireWaiting(t, queued, "a reader that came later")
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-queued)
		require.NoError(t, (<-late).Release())
		require.NoError(t, tries.Rollback(t.Context()))
		require.Zero(t, locks(t, work, true))
	})
}

// A writer that holds the turnstile gives up. Nobody notifies the readers that it kept out.
func TestReadersJoinAgainWhenAWriterElsewhereHasGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{Wait: time.Minute}), w.open(advisory.Config{})
		first := w.acquire(a.With(shared), 1)
		writer := w.beginAcquire(w.Context(), b.With(advisory.Options{Wait: time.Second}), 1)
		bubble.Sleep(500 * time.Millisecond)
		second := w.beginAcquire(w.Context(), a.With(shared), 1)
		w.assertWaits(second)
		require.ErrorIs(w, (<-writer).err, advisory.ErrTimeout)
		start := time.Now()
		lock := w.granted(second)
		assert.LessOrEqual(w, time.Since(start), 500*time.Millisecond)
		w.release(first, lock)
	})
}
