package advisory_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
)

// A lossLog is a slog.Handler that calls a function for each record.
type lossLog struct{ call func() }

func (h lossLog) Enabled(context.Context, slog.Level) bool { return true }
func (h lossLog) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}
func (h lossLog) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h lossLog) WithGroup(string) slog.Handler      { return h }

// A derived context cannot check the clock. It has ended only if the Locker canceled its parent.
func TestEveryHolderOfAConnectionIsToldBeforeAnyReport(t *testing.T) {
	t.Parallel()
	const locks = 500
	for name, config := range map[string]func(report func()) advisory.Config{
		"tracer": func(report func()) advisory.Config {
			return advisory.Config{MaxLocks: locks, Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) { report() }}}
		},
		"logger": func(report func()) advisory.Config {
			return advisory.Config{MaxLocks: locks, Logger: slog.New(lossLog{report})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubbleOf(t, many, func(w *world) {
				var derived []context.Context
				var told, reports atomic.Int64
				l := w.open(config(func() {
					reports.Add(1)
					for _, ctx := range derived {
						if !assert.Error(w, ctx.Err(), "a report came before the end of another holder's context") {
							return
						}
					}
				}))
				var held []*advisory.Lock
				for i := range int64(locks) {
					lock := w.acquire(l, i)
					ctx, cancel := context.WithCancel(lock.Context())
					defer cancel()
					derived, held = append(derived, ctx), append(held, lock)
					go func() {
						<-ctx.Done()
						told.Add(1)
					}()
				}
				bubble.Sleep(time.Second) // the connection is watched by now
				w.server.KillSessions()
				synctest.Wait()
				assert.Equal(w, int64(locks), told.Load())
				assert.Equal(w, int64(locks), reports.Load())
				for _, lock := range held {
					require.ErrorIs(w, lock.Release(), advisory.ErrLost)
				}
			})
		})
	}
}

func TestAReportThatHangsDelaysNoOtherLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		hang := make(chan struct{})
		l := w.open(advisory.Config{Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) { <-hang }}})
		for range 2 {
			var locks []*advisory.Lock
			for i := range int64(3) {
				locks = append(locks, w.acquire(l, i))
				_ = locks[i].Context()
			}
			w.server.KillSessions()
			for _, lock := range locks {
				ctx, cancel := context.WithCancel(lock.Context())
				<-ctx.Done()
				cancel()
				require.ErrorIs(w, lock.Release(), advisory.ErrLost)
			}
		}
		w.release(w.acquire(l, 1))
		close(hang)
	})
}

func TestAReportMayCloseTheLocker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		for _, killed := range []bool{true, false} {
			var l *advisory.Locker
			var reports atomic.Int64
			l = w.open(advisory.Config{Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) {
				l.Close()
				reports.Add(1)
			}}})
			lock := w.acquire(l, 1)
			if killed {
				w.server.KillSessions()
			} else {
				l.Close()
			}
			<-lock.Lost()
			synctest.Wait()
			assert.Equal(w, int64(1), reports.Load())
			_, err := l.Acquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrClosed)
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

// A valueFunc is a context of the program's own making.
type valueFunc struct {
	context.Context
	call func()
}

func (c valueFunc) Value(key any) any {
	c.call()
	return c.Context.Value(key)
}

func TestAContextThatPanicsLeavesTheLockerUsable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		hostile := valueFunc{w.Context(), func() { panic("no value") }}
		for range 3 {
			assert.Panics(w, func() { _, _ = l.Acquire(hostile, entity(1)) })
			assert.Panics(w, func() { _, _ = l.AcquireAll(hostile, entity(1), entity(2)) })
		}
		w.release(w.acquire(l, 1))
	})
}

func TestAContextMayCallTheLocker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{})
		outer := w.acquire(l, 1)
		var inner atomic.Pointer[advisory.Lock]
		ctx := valueFunc{outer.Context(), func() {
			assert.NotEmpty(w, held(l))
			_ = l.Stats()
			if lock := inner.Load(); lock != nil {
				_ = lock.Lost()
				_ = lock.Context()
			}
		}}
		_, err := l.Acquire(ctx, entity(1))
		require.ErrorIs(w, err, advisory.ErrReentrant)
		for range 2 {
			lock, err := l.Acquire(ctx, entity(2))
			require.NoError(w, err)
			_ = lock.Context()
			inner.Store(lock)
			w.release(lock)
		}
		lock, err := l.Acquire(ctx, entity(2))
		require.NoError(w, err)
		ended := lock.Context().Done()
		inner.Store(lock)
		defer w.fill(l)()
		other := w.acquire(l, 3) // so that something is held
		w.server.Kill(lock.PID())
		<-ended
		synctest.Wait()
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		for _, lock := range []*advisory.Lock{outer, other} {
			if err := lock.Release(); err != nil {
				require.ErrorIs(w, err, advisory.ErrLost)
			}
		}
	})
}

// The slot and the plain key are one lock at the server, which a session would be let in to twice.
func TestASlotIsNotGrantedBesideItsPlainKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		slot, err := entity(42).Companion("slot0")
		require.NoError(w, err)
		for _, wait := range []bool{true, false} {
			plain := make(pending, 1)
			begun := false
			f.onTry = func(namespace.Tag) error {
				if begun {
					return nil
				}
				begun = true
				go func() {
					acquire := l.TryAcquire
					if wait {
						acquire = l.Acquire
					}
					lock, err := acquire(w.Context(), slot)
					plain <- outcome{lock, err, time.Now()}
				}()
				bubble.Sleep(time.Millisecond) // the slot's try is on its way, and the plain key is asked for
				return nil
			}
			lock, err := l.AcquireSlot(w.Context(), entity(42), 1)
			require.NoError(w, err)
			if wait {
				w.assertWaits(plain)
				w.release(lock)
				w.release(w.granted(plain))
				continue
			}
			bubble.Sleep(time.Second)
			require.ErrorIs(w, (<-plain).err, advisory.ErrHeld)
			w.release(lock)
		}
		w.assertIdle(l)
		assert.Empty(w, w.server.Locked())
	})
}

// A Locker cancels the contexts of a lost connection's holders one by one. Each cancellation reads the parent context, which may
// call the Locker.
func TestALookIsRightWhileOtherHoldersAreTold(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		l := w.open(advisory.Config{})
		var locks []*advisory.Lock
		var telling atomic.Bool
		looked := 0
		first := valueFunc{w.Context(), func() {
			if !telling.CompareAndSwap(true, false) {
				return
			}
			for _, lock := range locks {
				looked++
				require.ErrorIs(w, context.Cause(lock.Context()), advisory.ErrLost)
				require.Error(w, lock.Context().Err())
				<-lock.Lost()
			}
		}}
		for i := range int64(50) {
			lock, err := l.Acquire(first, entity(i))
			require.NoError(w, err)
			_ = lock.Context()
			locks = append(locks, lock)
		}
		bubble.Sleep(time.Second) // watched
		telling.Store(true)
		w.server.KillSessions()
		synctest.Wait()
		assert.Equal(w, 50, looked)
		for _, lock := range locks {
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
	})
}

func TestReportsThatASlowTracerHasNoRoomForAreCounted(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		var told atomic.Int64
		var warned atomic.Int64
		hang := make(chan struct{})
		l := w.open(advisory.Config{
			Logger: slog.New(lossLog{func() { warned.Add(1) }}),
			Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) {
				<-hang
				told.Add(1)
			}},
		})
		l.KeepReports(10)
		var locks []*advisory.Lock
		for i := range int64(100) {
			locks = append(locks, w.acquire(l, i))
		}
		w.server.KillSessions()
		for _, lock := range locks {
			<-lock.Lost() // a hanging Tracer delays no holder
			require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		}
		close(hang)
		synctest.Wait()
		unreported := l.Stats().Unreported
		assert.Positive(w, unreported)
		assert.Equal(w, int64(100), told.Load()+unreported)
		assert.Equal(w, told.Load()+1, warned.Load(), "each loss that is reported, and once that others are not")
		assert.Equal(w, int64(100), l.Stats().Lost)
	})
}

// A try whose answer is on its way holds nobody up for longer than that.
func TestATryOfAnotherLockerIsNoWaitOfACircle(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		f := &faulty{Source: w.inProcess("faulty")}
		a, err := advisory.Open(session.WithSource(w.Context(), f), w.config(advisory.Config{}))
		require.NoError(w, err)
		w.Cleanup(a.Close)
		b := w.openTogether(advisory.Config{})
		one, two := w.acquire(a, 1), w.acquire(b, 2)
		asked := make(chan struct{})
		f.onTry = func(tag namespace.Tag) error {
			if tag == entity(2).Tag() {
				close(asked)
				bubble.Sleep(10 * time.Millisecond)
			}
			return nil
		}
		tried := make(chan error, 1)
		go func() {
			_, err := a.TryAcquire(one.Context(), entity(2))
			tried <- err
			assert.NoError(w, one.Release())
		}()
		<-asked
		lock, err := b.Acquire(two.Context(), entity(1))
		require.NoError(w, err)
		require.ErrorIs(w, <-tried, advisory.ErrHeld)
		require.NoError(w, lock.Release())
		require.NoError(w, two.Release())
	})
}

// told opens a Locker that notes the order of its reports.
func told(w *world, change func(*advisory.Tracer)) (l *advisory.Locker, reports func() []string) {
	var mu sync.Mutex
	var order []string
	note := func(report string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, report)
	}
	tracer := advisory.Tracer{
		Loss:    func(context.Context, advisory.LossData) { note("loss") },
		Release: func(context.Context, advisory.ReleaseData) { note("release") },
	}
	if change != nil {
		change(&tracer)
	}
	return w.open(advisory.Config{Tracer: tracer}), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return order
	}
}

func TestALossIsReportedBeforeTheReleaseOfAHolderThatSeesItFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, reports := told(w, nil)
		slow := false
		parent := valueFunc{w.Context(), func() {
			if slow {
				bubble.Sleep(time.Millisecond) // so that the holder goes on before the cancel returns
			}
		}}
		lock, err := l.Acquire(parent, entity(1))
		require.NoError(w, err)
		done := lock.Context().Done()
		released := make(chan error, 1)
		go func() { <-done; released <- lock.Release() }()
		bubble.Sleep(time.Second)
		slow = true
		w.server.KillSessions()
		require.ErrorIs(w, <-released, advisory.ErrLost)
		bubble.Sleep(time.Second)
		assert.Equal(w, []string{"loss", "release"}, reports())
	})
}

func TestAReportThatEndsItsGoroutineEndsNothingElse(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l, reports := told(w, func(tracer *advisory.Tracer) {
			tracer.Loss = func(context.Context, advisory.LossData) { runtime.Goexit() }
		})
		lock := w.acquire(l, 1)
		w.server.KillSessions()
		<-lock.Context().Done()
		synctest.Wait()
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		synctest.Wait()
		assert.Equal(w, []string{"release"}, reports())
	})
}
