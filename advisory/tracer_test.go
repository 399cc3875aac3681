package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
)

// A recorder is a tracer that writes down its calls. It asks the Locker, which a
// tracer may do.
type recorder struct {
	locker *advisory.Locker

	mu    sync.Mutex
	calls []string
}

func (r *recorder) record(format string, args ...any) {
	_ = r.locker.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) tracer() advisory.Tracer {
	return advisory.Tracer{Acquire: r.acquire, Wait: r.wait, Release: r.release, Loss: r.loss}
}

func (r *recorder) acquire(_ context.Context, d advisory.AcquireData) {
	result := "granted"
	for name, err := range map[string]error{
		"held": advisory.ErrHeld, "lost": advisory.ErrLost, "reentrant": advisory.ErrReentrant, "timeout": advisory.ErrTimeout,
	} {
		if errors.Is(d.Err, err) && (result == "granted" || name == "timeout") {
			result = name
		}
	}
	r.record("acquire %v %q shared=%v try=%v %v: %v", d.Key, d.Label, d.Shared, d.Try, d.Waited, result)
	if d.Err == nil {
		r.record("hold %v %q shared=%v pid=%d handover=%v", d.Key, d.Label, d.Shared, d.PID, d.HandOver)
	}
}

func (r *recorder) wait(_ context.Context, d advisory.WaitData) {
	r.record("wait %v %q shared=%v ahead=%d", d.Key, d.Label, d.Shared, d.Ahead)
}

func (r *recorder) release(_ context.Context, d advisory.ReleaseData) {
	r.record("release %v %q %v lost=%v", d.Key, d.Label, d.Held, errors.Is(d.Err, advisory.ErrLost))
}

func (r *recorder) loss(_ context.Context, d advisory.LossData) {
	r.record("loss %v %q %v", d.Key, d.Label, d.Held)
}

func TestATracerIsToldEverythingInOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &recorder{}
		a, b := w.open(advisory.Config{Tracer: r.tracer(), HandOverBudget: time.Hour}), w.open(advisory.Config{})
		r.locker = a
		one := a.With(advisory.Options{Label: "one"})
		two := a.With(advisory.Options{Label: "two", Wait: time.Second})
		expect := func(calls ...string) {
			w.Helper()
			synctest.Wait() // reports about a lost lock have a goroutine of their own
			assert.Equal(w, calls, r.calls)
			r.calls = nil
		}

		lock := w.acquire(one, 1)
		expect(`acquire agent/1 "one" shared=false try=false 0s: granted`, `hold agent/1 "one" shared=false pid=1 handover=false`)

		p, q := w.beginAcquire(w.Context(), two, 1), w.beginAcquire(w.Context(), one, 1)
		expect(`wait agent/1 "two" shared=false ahead=0`, `wait agent/1 "one" shared=false ahead=1`)

		bubble.Sleep(time.Second / 2)
		w.release(lock)
		second := w.now(p)
		release := `release agent/1 "one" 500ms lost=false` // by another goroutine than what follows: it may come later
		assert.Contains(w, r.calls, release)
		r.calls = slices.DeleteFunc(r.calls, func(call string) bool { return call == release })
		expect(`acquire agent/1 "two" shared=false try=false 500ms: granted`, `hold agent/1 "two" shared=false pid=1 handover=true`)

		_, err := two.TryAcquire(second.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrReentrant)
		_, err = two.TryAcquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrHeld)
		expect(`acquire agent/1 "two" shared=false try=true 0s: reentrant`, `acquire agent/1 "two" shared=false try=true 0s: held`)

		w.release(second)
		third := w.now(q)
		r.calls = nil
		bubble.Sleep(time.Second)
		w.server.Kill(w.pidOf(1))
		<-third.Lost()
		w.assertIdle(a)
		expect(`loss agent/1 "one" 1s`)
		require.ErrorIs(w, third.Release(), advisory.ErrLost)
		expect(`release agent/1 "one" 1s lost=true`)

		foreign := w.acquire(b, 1)
		_, err = two.Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, advisory.ErrTimeout)
		expect(`wait agent/1 "two" shared=false ahead=0`, `acquire agent/1 "two" shared=false try=false 1s: timeout`)
		w.release(foreign)
	})
}

func TestATracerOfAcquireAllIsToldOfOneLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &recorder{}
		a := w.open(advisory.Config{Tracer: r.tracer()})
		r.locker = a
		w.release(w.now(w.beginAll(w.Context(), a.With(shared), 2, 1)))
		assert.Equal(w, []string{
			`acquire agent/1 "" shared=true try=false 0s: granted`, `hold agent/1 "" shared=true pid=1 handover=false`,
			`release agent/1 "" 0s lost=false`,
		}, r.calls)
	})
}

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
		assert.Equal(w, 1, l.Stats().Held, "it got the same Locker")
		w.release(lock)
		l.Close()
		l.Close()
		assert.Equal(w, []string{"open a", "open b", "close a", "close b"}, told)
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
		assert.Nil(w, joined.Acquire, "nobody pays for reports that nobody gets")
	})
}

// A tracer can put together the reports of one request and its lock, also where several
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

func TestHeldDescribesEachLockOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		since := time.Now()
		all, err := a.With(advisory.Options{Label: "move", Shared: true}).AcquireAll(w.Context(), entity(2), entity(1))
		require.NoError(w, err)
		bubble.Sleep(time.Second)
		one, two := w.beginAcquire(w.Context(), a, 1), w.beginAcquire(w.Context(), a, 2)
		want := advisory.HeldLock{
			Keys: []namespace.Key{entity(1), entity(2)}, Label: "move", Shared: true, Since: since, PID: w.pidOf(1), Waiters: 2,
		}
		assert.Equal(w, []advisory.HeldLock{want}, held(a))

		w.release(all)
		w.release(w.now(one), w.now(two))
		assert.Empty(w, held(a))
	})
}

func TestStatsCountWhatHappened(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a, b := w.open(advisory.Config{MaxConns: 4}), w.open(advisory.Config{})
		foreign := w.acquire(b, 2)
		first := w.acquire(a, 1)
		handOver := w.beginAcquire(w.Context(), a, 1)
		one, two := w.acquire(a.With(shared), 3), w.acquire(a.With(shared), 3)
		brief := a.With(advisory.Options{Wait: time.Second})
		waiter := w.beginAcquire(w.Context(), brief, 2)
		want := advisory.Stats{
			Held: 3, Waiting: 2, Acquired: 3, HandOvers: 1, WaitSteps: 2,
			Sessions: 3, SessionsInUse: 3, MaxConns: 4, Locks: 3, Batches: 3,
		}
		if w.locksPerConn > 1 { // two keys on one connection, and a wait
			got := a.Stats()
			assert.Contains(w, []int{2, 3}, got.SessionsInUse)
			want.Sessions, want.SessionsInUse, want.MaxConns = got.Sessions, got.SessionsInUse, 4+1
			want.MaxLocks = 100
		}
		assert.Equal(w, want, a.Stats())
		assert.EqualValues(w, 3, a.Operations())

		w.release(first)
		second := w.now(handOver)
		require.ErrorIs(w, (<-waiter).err, advisory.ErrTimeout)
		_, err := a.DoOrSkip(w.Context(), entity(2), nothing)
		require.NoError(w, err)
		_, err = a.DoOrSkip(second.Context(), entity(1), nothing)
		require.NoError(w, err)
		w.release(second)
		w.server.Kill(w.pidOf(3))
		<-one.Lost()
		<-two.Lost()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		require.ErrorIs(w, two.Release(), advisory.ErrLost)
		w.release(foreign)
		synctest.Wait()
		s := a.Stats()
		assert.GreaterOrEqual(w, s.WaitSteps, int64(2))
		s.MaxConns -= min(1, w.locksPerConn-1)
		s.MaxLocks, s.Batches = 0, 0
		s.WaitSteps, s.Sessions = 0, 0 // the end of the wait and of its last wait step are one instant
		assert.Equal(w, advisory.Stats{
			Acquired: 4, HandOvers: 2, Skips: 1, ReentrantSkips: 1, Timeouts: 1, Lost: 2, MaxConns: 4,
		}, s)
	})
}

// The description of locks blocks all other changes, so it goes page by page.
func TestHeldDescribesAFewLocksAtATime(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, many, func(w *world) {
		const n = 2000
		l := w.open(advisory.Config{MaxLocks: n})
		locks := make([]*advisory.Lock, n)
		for i := range locks {
			locks[i] = w.acquire(l, int64(i))
		}
		assert.Len(w, held(l), n)
		seen := 0
		for range l.Held() {
			if seen++; seen == 1 {
				w.release(locks...)
			}
		}
		assert.Less(w, seen, n/4, "the others were released before they were described")
	})
}

// panicker is a tracer that panics at everything.
func panicker() advisory.Tracer {
	return advisory.Tracer{
		Acquire: func(context.Context, advisory.AcquireData) { panic("acquire") },
		Wait:    func(context.Context, advisory.WaitData) { panic("wait") },
		Release: func(context.Context, advisory.ReleaseData) { panic("release") },
		Loss:    func(context.Context, advisory.LossData) { panic("loss") },
	}
}

func TestATracerThatPanicsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{Tracer: panicker()})
		first := w.acquire(a, 1)
		p := w.beginAcquire(w.Context(), a, 1)
		w.assertWaits(p)
		w.release(first)
		w.release(w.now(p))
		lost := w.acquire(a, 1)
		w.server.KillSessions()
		<-lost.Lost()
		require.ErrorIs(w, lost.Release(), advisory.ErrLost)
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
