package advisory_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

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
				time.Sleep(10 * time.Millisecond)
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
				time.Sleep(time.Millisecond) // so that the holder goes on before the cancel returns
			}
		}}
		lock, err := l.Acquire(parent, entity(1))
		require.NoError(w, err)
		done := lock.Context().Done()
		released := make(chan error, 1)
		go func() { <-done; released <- lock.Release() }()
		time.Sleep(time.Second)
		slow = true
		w.server.KillSessions()
		require.ErrorIs(w, <-released, advisory.ErrLost)
		time.Sleep(time.Second)
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
