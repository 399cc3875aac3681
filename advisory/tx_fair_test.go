package advisory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

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
