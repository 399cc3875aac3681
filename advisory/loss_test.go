package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestALossHasOneOfTheKnownReasons(t *testing.T) {
	t.Parallel()
	reasons := make(map[string]bool)
	for cause, want := range map[error]string{
		&pgconn.PgError{Code: "57P01"}:                               lossreason.Terminated,
		&pgconn.PgError{Code: "57P05"}:                               lossreason.IdleTimeout,
		&pgconn.PgError{Code: "57P02"}:                               lossreason.Crash,
		fmt.Errorf("%w: %w", session.ErrSilent, io.ErrUnexpectedEOF): lossreason.Silent,
		session.ErrNotHeld:                                           lossreason.NotHeld,
		advisory.ErrClosed:                                           lossreason.Closed,
		io.ErrUnexpectedEOF:                                          lossreason.Connection,
		errors.New("other"):                                          lossreason.Connection,
		error(&wrapped{nil}):                                         lossreason.Connection,
	} {
		got := advisory.ReasonOf(cause)
		assert.Equal(t, want, got, "%v", cause)
		reasons[got] = true
	}
	assert.Len(t, reasons, len(lossreason.All()))
	for _, r := range lossreason.All() {
		assert.True(t, reasons[r], "%v", r)
	}
	assert.Equal(t, lossreason.Connection, advisory.ReasonOf(nil))
}

type wrapped struct{ error }

func (*wrapped) Error() string { return "wrapped" }

func TestTheReasonOfARealLossIsWhatWasDone(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = work.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(lock.PID()))
		require.NoError(t, err)
		pid := lock.PID()
		<-lock.Lost()
		assert.Equal(t, lossreason.Terminated, reasonOf(t, lock.Release()))
		assert.Equal(t, pid, lock.PID(), "also afterwards, for logs")

		lock, err = l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		l.Close()
		assert.Equal(t, lossreason.Closed, reasonOf(t, lock.Release()))
	})
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	lost, ok := errors.AsType[*advisory.LostError](err)
	require.True(t, ok, "%v", err)
	return advisory.ReasonOf(lost.Cause)
}

// At 500 ms with a LossDrain of 200 ms a ping had 83 ms, and on busy processors every lock was lost.
func TestALossDrainLeavesAPingTimeToBeAnswered(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		ttl, drain time.Duration
		good       bool
	}{
		{500 * ms, 0, true},
		{500 * ms, 33 * ms, true},
		{500 * ms, 34 * ms, false},
		{500 * ms, 200 * ms, false},
		{time.Second, 316 * ms, true},
		{time.Second, 400 * ms, false},
		{1500 * ms, 600 * ms, true},
		{1500 * ms, 600*ms + 1, false},
		{0, 6 * time.Second, true}, // 15 s
		{0, 6*time.Second + 1, false},
		{24 * time.Hour, 24 * time.Hour * 2 / 5, true},
		{time.Second, -1, false},
	} {
		locker, err := advisorytest.NewServer().Open(advisory.Config{SessionTTL: row.ttl, LossDrain: row.drain})
		if row.good {
			require.NoError(t, err, row)
			locker.Close()
			continue
		}
		var config *advisory.ConfigError
		require.ErrorAs(t, err, &config, row)
		assert.Equal(t, "LossDrain", config.Field)
		assert.Contains(t, config.Remedy, "longer SessionTTL")
	}
	for ttl := session.MinTTL; ttl <= time.Minute; ttl += 7 * ms {
		most := session.MaxLossDrain(ttl)
		assert.GreaterOrEqual(t, ttl-ttl/10-ttl/3-most, session.PingTime-1, ttl)
		assert.LessOrEqual(t, most, ttl*2/5)
		assert.Positive(t, most)
	}
}

func TestAHolderLearnsOfItsLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		lock := w.acquire(a, 1)
		ctx := lock.Context()
		bubble.Sleep(time.Minute)
		w.server.Kill(w.pidOf(1))
		<-lock.Lost()
		<-ctx.Done()
		require.ErrorIs(w, context.Cause(ctx), advisory.ErrLost)
		lost, ok := errors.AsType[*advisory.LostError](context.Cause(ctx))
		require.True(w, ok)
		assert.Equal(w, entity(1), lost.Key)
		assert.Equal(w, time.Minute, lost.Held)
		require.ErrorContains(w, lost, "terminating connection")
		assert.Zero(w, a.Stats().Held)

		err := lock.Release()
		require.ErrorIs(w, err, advisory.ErrLost)
		assert.Same(w, lost, err)
		require.ErrorIs(w, lock.Release(), advisory.ErrReleased)
		assert.Equal(w, int64(1), a.Stats().Lost)
	})
}

func TestDoReturnsTheLossBesideItsFunctionsError(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		broken := errors.New("broken")
		for _, result := range []error{nil, broken} {
			err := a.Do(w.Context(), entity(1), func(ctx context.Context) error {
				w.server.KillSessions()
				<-ctx.Done()
				return result
			})
			_, ok := errors.AsType[*advisory.LostError](err)
			assert.True(w, ok)
			require.ErrorIs(w, err, advisory.ErrLost)
			if result != nil {
				require.ErrorIs(w, err, broken)
			}
		}
	})
}

func TestAServerThatEndsEverySessionIsReported(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, f := w.openFaulty(advisory.Config{MaxConns: 2})
		f.onSession = func() { w.server.KillSessions() }
		start := time.Now()
		_, err := a.Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrUnavailable)
		require.NotErrorIs(w, err, advisory.ErrLost)
		require.ErrorContains(w, err, "terminating connection")
		assert.Less(w, time.Since(start), 15*time.Second)
	})
}

// A key that is always in use has one record. The record must not keep data of holders that lost
// the key.
func TestAKeyInUseKeepsNothingOfALostLock(t *testing.T) {
	t.Parallel()
	type key struct{}
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		var next pending
		value := func() weak.Pointer[[1 << 10]byte] {
			value := new([1 << 10]byte)
			lock, err := l.Acquire(context.WithValue(w.Context(), key{}, value), entity(1))
			require.NoError(w, err)
			next = w.beginAcquire(w.Context(), l, 1)
			w.server.KillSessions()
			<-lock.Lost()
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			return weak.Make(value)
		}()
		holder := w.granted(next)
		synctest.Wait()                                               // who told of the loss is through
		for tries := 0; tries < 10 && value.Value() != nil; tries++ { // a stack may hold it for a moment
			runtime.GC()
		}
		assert.Nil(w, value.Value())
		w.release(holder)
	})
}

func TestALossIsCountedWhenItsHolderSeesIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		for i := range int64(300) {
			lock := w.acquire(l, 1)
			lost := lock.Lost()
			w.server.KillSessions()
			<-lost
			require.Equal(w, i+1, l.Stats().Lost)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

// entitiesOnOne returns n entities that live on one connection, in the
// order in which AcquireAll takes them.
func (w *world) entitiesOnOne(l *advisory.Locker, n int) (entities []int64) {
	w.Helper()
	var pid uint32
	for i := int64(100); len(entities) < n; i++ {
		lock := w.acquire(l, i)
		if pid == 0 {
			pid = lock.PID()
		}
		if lock.PID() == pid {
			entities = append(entities, i)
		}
		defer w.release(lock)
	}
	slices.SortFunc(entities, func(a, b int64) int { return entity(a).Tag().Compare(entity(b).Tag()) })
	return entities
}

// The first key is held when its connection dies, and the try of the second one has not
// been sent there yet.
func TestAConnectionThatDiesBetweenTheKeysOfAnAcquireAllEndsIt(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 5, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		on := w.entitiesOnOne(l, 3)
		before, first := w.acquire(l, on[2]), w.acquire(l.With(shared), on[0])
		answer, released := make(chan struct{}), make(chan error, 1)
		f.onUnlocked = func() { <-answer }
		go func() { released <- before.Release() }()
		synctest.Wait() // the connection is in use
		p := w.begin(func() (*advisory.Lock, error) {
			return l.With(shared).AcquireAll(w.Context(), entity(on[0]), entity(on[1])) // joins the first
		})
		w.assertWaits(p)
		f.set(session.Lost)
		require.Error(w, first.Context().Err(), "it looks, and the connection is lost")
		f.set(session.Held)
		close(answer)
		require.ErrorIs(w, (<-p).err, advisory.ErrUnavailable)
		require.ErrorIs(w, <-released, advisory.ErrLost)
		require.ErrorIs(w, first.Release(), advisory.ErrLost)
		w.release(w.now(w.begin(func() (*advisory.Lock, error) {
			return l.AcquireAll(w.Context(), entity(on[0]), entity(on[1]))
		})))
	})
}

// The keys of an AcquireAll on connections that did not die go back with its release.
func TestTheReleaseOfALostLockGivesItsOtherKeysBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
		first, last := int64(1), int64(2)
		if entity(first).Tag().Compare(entity(last).Tag()) > 0 {
			first, last = last, first
		}
		reader := w.acquire(l.With(shared), first) // on a connection of its own
		foreign := w.acquire(other, last)
		p := w.begin(func() (*advisory.Lock, error) { return l.With(shared).AcquireAll(w.Context(), entity(1), entity(2)) })
		w.assertWaits(p)
		w.release(foreign)
		both := w.now(p)
		require.NotEqual(w, w.pidOf(first), w.pidOf(last))
		w.server.Kill(w.pidOf(first))
		<-both.Lost()
		require.ErrorIs(w, both.Release(), advisory.ErrLost)
		require.ErrorIs(w, reader.Release(), advisory.ErrLost)
		w.release(w.now(w.beginAcquire(w.Context(), other, last)))
	})
}

// A connection that ends in the instant in which a wait on it succeeds grants nothing.
func TestAWaitThatSucceedsOnAConnectionThatHasEndedIsNoGrant(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{MaxConns: 1})
		other := w.open(advisory.Config{})
		var won atomic.Pointer[advisory.Lock] // whose connection is lost then
		f.onWon = func() {
			if lock := won.Swap(nil); lock != nil {
				f.set(session.Lost)
				assert.Error(w, lock.Context().Err(), "it looks")
				f.set(session.Held)
			}
		}
		foreign := w.acquire(other, 1)
		p := w.beginAcquire(w.Context(), l, 1)
		w.release(foreign)
		one := w.now(p) // lives on the only connection that waits
		bubble.Sleep(time.Second)
		second := w.acquire(other, 2)
		q := w.beginAcquire(w.Context(), l, 2)
		bubble.Sleep(time.Second)
		won.Store(one)
		w.release(second)
		o := <-q
		if o.err == nil {
			require.NotEqual(w, one.PID(), o.lock.PID(), "that connection is gone")
			w.release(o.lock)
		}
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
	})
}

// The Locker retries parked keys again and again. Without room for them, that must end too.
func TestParkedKeysWithoutRoomForTheirLocksHoldUpNobody(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, other := w.open(advisory.Config{MaxConns: 1, MaxLocks: 3}), w.open(advisory.Config{})
		var foreign []*advisory.Lock
		var waits []pending
		for i := range int64(4) {
			foreign = append(foreign, w.acquire(other, i))
			waits = append(waits, w.beginAcquire(w.Context(), l, i))
		}
		mine := []*advisory.Lock{w.acquire(l, 10), w.acquire(l, 11)} // and one waits
		_, err := l.Acquire(w.Context(), entity(12))
		require.ErrorIs(w, err, advisory.ErrLockTableFull)
		bubble.Sleep(5 * time.Second)
		w.release(mine...)
		w.release(foreign...)
		for _, p := range waits {
			w.release(w.granted(p))
		}
	})
}

// A reader asks whether a writer waits, and leaves before its question is sent. It must not be
// appointed to drive the connection.
func TestAReaderThatLeavesBeforeItsQuestionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		first := w.acquire(l.With(shared), 1)
		bubble.Sleep(time.Second)
		answer := make(chan struct{})
		f.onTry = func(namespace.Tag) error { <-answer; return nil }
		busy := w.beginAcquire(w.Context(), l, 2)
		ctx, cancel := context.WithCancel(w.Context())
		reader := w.beginAcquire(ctx, l.With(shared), 1)
		cancel()
		require.ErrorIs(w, (<-reader).err, context.Canceled)
		close(answer)
		lock := w.now(busy)
		assert.EqualValues(w, 1, f.questions.Load(), "somebody else asks")
		w.release(lock)
		w.release(first)
		w.release(w.now(w.beginAcquire(w.Context(), l, 3)))
	})
}

func TestATryThatStandsBehindOneWithoutAConnectionIsNotToldOfAHeldLock(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{true, false} {
		inBubbleOf(t, 1, func(w *world) {
			l := w.open(advisory.Config{MaxConns: 1, Wait: time.Second})
			options := advisory.Options{Shared: !exclusive}
			used := w.acquire(l, 1) // the only connection
			first := w.beginAcquire(w.Context(), l.With(advisory.Options{Wait: 500 * time.Millisecond}), 2)
			var ran bool
			p := w.begin(func() (*advisory.Lock, error) {
				var err error
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(2), nothing)
				return nil, err
			})
			w.assertWaits(p)
			require.ErrorIs(w, (<-first).err, advisory.ErrPoolExhausted)
			w.release(used)
			require.NoError(w, (<-p).err)
			assert.True(w, ran, "nobody held it")

			used = w.acquire(l, 1) // and the control: one that gets the lock is a holder
			first = w.beginAcquire(w.Context(), l, 2)
			p = w.begin(func() (*advisory.Lock, error) {
				var err error
				ran, err = l.With(options).DoOrSkip(w.Context(), entity(2), nothing)
				return nil, err
			})
			w.assertWaits(p)
			w.release(used)
			require.NoError(w, (<-p).err)
			assert.False(w, ran)
			w.release(w.now(first))
			synctest.Wait()
		})
	}
}

func TestAWaiterWhoseSessionEndsGoesOnWithAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
		lock := w.acquire(b, 1)
		p := w.beginAcquire(w.Context(), a, 1)
		for range 5 {
			for pid := range uint32(100) {
				if pid != w.pidOf(1) {
					w.server.Kill(pid)
				}
			}
			bubble.Sleep(200 * time.Millisecond)
			assert.Equal(w, 1, w.server.Waiters(entity(1)))
		}
		w.release(lock)
		w.release(w.now(p))
		assert.Zero(w, a.Stats().Lost)
	})
}
