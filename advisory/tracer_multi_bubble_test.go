package advisory_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

func TestATracerIsToldOfTheOpeningAndTheEndOfItsLocker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var told []string
		var of *advisory.Locker
		note := func(name string) advisory.Tracer {
			return advisory.Tracer{Open: func(l *advisory.Locker) func() {
				of = l
				told = append(told, "open "+name)
				return func() { told = append(told, "close "+name) }
			}}
		}
		silent := advisory.Tracer{Open: func(*advisory.Locker) func() { return nil }}
		l, err := openOn(w.server, w.config(advisory.Config{Tracer: advisory.MultiTracer(note("a"), advisory.Tracer{}, silent, note("b"))}))
		require.NoError(w, err)
		lock, err := of.Acquire(w.Context(), entity(1))
		require.NoError(w, err)
		assert.Equal(w, 1, l.Stats().Held, "it was told of the same Locker")
		w.release(lock)
		l.Close()
		l.Close()
		assert.Equal(w, []string{"open a", "open b", "close a", "close b"}, told)
	})
}

func TestATracerThatPanicsWhenALockerOpensOrClosesChangesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		l := w.open(advisory.Config{Tracer: advisory.Tracer{Open: func(*advisory.Locker) func() { panic("open") }}})
		w.release(w.acquire(l, 1))
		w.open(advisory.Config{Tracer: advisory.Tracer{Open: func(*advisory.Locker) func() { return func() { panic("close") } }}}).Close()
	})
}

func TestAMultiTracerCallsAllInTheirOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var told []string
		acquire := func(name string) func(context.Context, advisory.AcquireData) {
			return func(_ context.Context, d advisory.AcquireData) { told = append(told, name+" "+d.Key.String()) }
		}
		release := func(name string) func(context.Context, advisory.ReleaseData) {
			return func(_ context.Context, d advisory.ReleaseData) { told = append(told, name+" "+d.Key.String()) }
		}
		l := w.open(advisory.Config{Tracer: advisory.MultiTracer(
			advisory.Tracer{Acquire: acquire("a"), Release: release("a")}, advisory.Tracer{}, advisory.Tracer{Acquire: acquire("b"), Release: release("b")},
		)})
		w.release(w.acquire(l, 1))
		assert.Equal(w, []string{"a agent/1", "b agent/1", "a agent/1", "b agent/1"}, told)
		joined := advisory.MultiTracer(advisory.Tracer{Release: release("a")})
		assert.Nil(w, joined.Acquire, "nobody pays for what nobody is told")
	})
}

// A tracer can put together what it is told of one request and its lock, also where several
// share a key.
func TestTheCallsAboutOneRequestAndItsLockHaveOneValueInCommon(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var mu sync.Mutex
		calls := make(map[any][]string)
		note := func(request any, name string) {
			mu.Lock()
			defer mu.Unlock()
			calls[request] = append(calls[request], name)
		}
		l := w.open(advisory.Config{Tracer: advisory.Tracer{
			Wait:    func(_ context.Context, d advisory.WaitData) { note(d.Request, "wait") },
			Acquire: func(_ context.Context, d advisory.AcquireData) { note(d.Request, "acquire") },
			Release: func(_ context.Context, d advisory.ReleaseData) { note(d.Request, "release") },
			Loss:    func(_ context.Context, d advisory.LossData) { note(d.Request, "loss") },
		}})
		readers := l.With(shared)
		one, two := w.acquire(readers, 1), w.acquire(readers, 1)
		writer := w.beginAcquire(w.Context(), l, 1)
		w.release(one, two)
		lock := w.granted(writer)
		w.server.Kill(lock.PID())
		<-lock.Lost()
		require.ErrorIs(w, lock.Release(), advisory.ErrLost)
		w.assertIdle(l)
		var all [][]string
		for _, of := range calls {
			all = append(all, of)
		}
		assert.ElementsMatch(w, [][]string{
			{"acquire", "release"}, {"acquire", "release"}, {"wait", "acquire", "loss", "release"},
		}, all)
	})
}
