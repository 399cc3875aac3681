package advisory_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
	"github.com/pglatch/pglatch/namespace"
)

// A model knows who believes to hold what, and finds beliefs that exclude each
// other.
type model struct {
	mu         sync.Mutex
	holders    []*advisory.Lock
	violations []string
}

func (m *model) violated(format string, args ...any) {
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

// lost looks, as a holder's own code does. A context that ended for another reason
// tells nothing.
func lost(l *advisory.Lock) bool { return l.Context().Err() != nil }

// enter checks a lock that was just granted. A holder that has not seen its loss
// by now, and a newcomer that has not by a moment later, held at one time.
func (m *model) enter(l *advisory.Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.holders {
		if h.Shared() && l.Shared() || lost(h) || lost(l) {
			continue
		}
		for _, key := range l.Keys() {
			if slices.Contains(h.Keys(), key) {
				m.violated("%v has two holders: shared=%v and shared=%v", key, h.Shared(), l.Shared())
			}
		}
	}
	m.holders = append(m.holders, l)
}

// leave is called before the release.
func (m *model) leave(l *advisory.Lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holders = slices.DeleteFunc(m.holders, func(h *advisory.Lock) bool { return h == l })
}

// expected are the errors that random calls may end with.
var expected = []error{
	advisory.ErrTimeout, advisory.ErrHeld, advisory.ErrReentrant, advisory.ErrDeadlock, advisory.ErrPoolExhausted,
	advisory.ErrUnavailable, advisory.ErrLost, advisory.ErrClosed, context.Canceled, context.DeadlineExceeded,
}

func (m *model) check(err error) {
	if err == nil || !strings.Contains(err.Error(), "BUG") && slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violated("unexpected error: %v", err)
}

// A step is one random call of one goroutine.
type step struct {
	Locker   int
	Kind     string
	Entities []int64
	Shared   bool
	Delay    time.Duration // before it
	Hold     time.Duration
	Wait     time.Duration
	Cancel   time.Duration // 0 = never
	Inner    []step        // under the lock
}

func drawStep(depth int) *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		ms := func(label string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
		}
		s := step{
			Locker:   rapid.IntRange(0, 1).Draw(t, "locker"),
			Kind:     rapid.SampledFrom([]string{"acquire", "acquire", "try", "all", "slot"}).Draw(t, "kind"),
			Entities: rapid.SliceOfN(rapid.Int64Range(1, 3), 1, 3).Draw(t, "entities"),
			Shared:   rapid.Bool().Draw(t, "shared"),
			Delay:    ms("delay", 8),
			Hold:     ms("hold", 12),
			Wait:     ms("wait", 60) + time.Millisecond,
			Cancel:   ms("cancel", 20),
		}
		if depth > 0 && rapid.Bool().Draw(t, "nested") {
			s.Inner = rapid.SliceOfN(drawStep(depth-1), 1, 2).Draw(t, "inner")
		}
		return s
	})
}

func (s step) call(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
	l = l.With(advisory.Options{Wait: s.Wait, Shared: s.Shared && s.Kind != "slot"})
	switch s.Kind {
	case "try":
		return l.TryAcquire(ctx, entity(s.Entities[0]))
	case "all":
		keys := make([]namespace.Key, len(s.Entities))
		for i, e := range s.Entities {
			keys[i] = entity(e)
		}
		return l.AcquireAll(ctx, keys...)
	case "slot":
		return l.AcquireSlot(ctx, entity(s.Entities[0]), 2)
	}
	return l.Acquire(ctx, entity(s.Entities[0]))
}

func (s step) run(ctx context.Context, m *model, lockers []*advisory.Locker) {
	bubble.Sleep(s.Delay)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(cmp.Or(s.Cancel, time.Hour), cancel)
	lock, err := s.call(ctx, lockers[s.Locker])
	timer.Stop()
	if err != nil {
		m.check(err)
		return
	}
	m.enter(lock)
	for _, inner := range s.Inner {
		inner.run(lock.Context(), m, lockers)
	}
	bubble.Sleep(s.Hold)
	m.leave(lock)
	m.check(lock.Release())
}

// A plan is what several goroutines do, and when sessions end.
type plan struct {
	Goroutines   [][]step
	Kills        []kill
	LocksPerConn int
	MaxConns     int
	Budget       time.Duration
	Close        time.Duration // when the first Locker is closed; 0 = at the end
}

type kill struct {
	After time.Duration
	PID   uint32 // 0 = all
}

var drawPlan = rapid.Custom(func(t *rapid.T) plan {
	return plan{
		Goroutines: rapid.SliceOfN(rapid.SliceOfN(drawStep(2), 1, 5), 2, 8).Draw(t, "goroutines"),
		Kills: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kill {
			return kill{time.Duration(rapid.IntRange(0, 30).Draw(t, "after")) * time.Millisecond, rapid.Uint32Range(0, 8).Draw(t, "pid")}
		}), 0, 4).Draw(t, "kills"),
		LocksPerConn: rapid.SampledFrom([]int{1, 2, many}).Draw(t, "locks per connection"),
		MaxConns:     rapid.IntRange(1, 6).Draw(t, "max conns"),
		Budget:       rapid.SampledFrom([]time.Duration{-1, 0, time.Hour}).Draw(t, "budget"),
		Close:        time.Duration(max(0, rapid.IntRange(-60, 60).Draw(t, "close"))) * time.Millisecond,
	}
})

// run carries the plan out and returns what was wrong.
func (p plan) run(t *testing.T) []string {
	t.Helper()
	var m model
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		var lockers []*advisory.Locker
		for range 2 {
			l, err := openOn(server, lockmode.Mode{LocksPerConn: p.LocksPerConn}.Config(advisory.Config{MaxConns: p.MaxConns, HandOverBudget: p.Budget}))
			require.NoError(t, err)
			lockers = append(lockers, l)
		}
		var wg sync.WaitGroup
		for _, steps := range p.Goroutines {
			wg.Go(func() {
				for _, s := range steps {
					s.run(context.Background(), &m, lockers)
				}
			})
		}
		if p.Close > 0 {
			wg.Go(func() {
				bubble.Sleep(p.Close)
				lockers[0].Close()
			})
		}
		wg.Go(func() {
			for _, k := range p.Kills {
				bubble.Sleep(k.After)
				if k.PID == 0 {
					server.KillSessions()
				} else {
					server.Kill(k.PID)
				}
			}
		})
		wg.Wait()
		if p.LocksPerConn > 1 { // a connection may still be on its way that nobody needs any more
			bubble.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if locked := server.Locked(); len(locked) > 0 {
			m.violated("left locked: %v", locked)
		}
		for i, l := range lockers {
			if s := l.Stats(); s.Held+s.Waiting+s.SessionsInUse > 0 {
				m.violated("left in locker %d: %+v", i, s)
			}
			l.Close()
		}
	})
	return m.violations
}

func TestRandomCallsNeverShareWhatIsExclusiveAndLeaveNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan.Draw(rt, "plan")
		if violations := p.run(t); len(violations) > 0 {
			rt.Fatalf("%q", violations)
		}
	})
}

func TestTheModelFindsTwoHolders(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var m model
		m.enter(w.acquire(w.open(advisory.Config{}), 1))
		other := &world{T: w.T, server: memory.NewServer()} // excludes nobody of the first
		m.enter(other.acquire(other.open(advisory.Config{}), 2))
		assert.Empty(w, m.violations)
		m.enter(other.acquire(other.open(advisory.Config{}).With(shared), 1))
		assert.Len(w, m.violations, 1)
		w.server.KillSessions()
		m.enter(other.acquire(other.open(advisory.Config{}), 3))
		m.enter(other.acquire(other.open(advisory.Config{}).With(shared), 1))
		assert.Len(w, m.violations, 1, "a holder that sees its loss is none")
		for _, l := range m.holders {
			m.check(l.Release())
		}
		m.check(errors.New("BUG"))
		assert.Len(w, m.violations, 2)
	})
}

// A trace from which an event was left out is not accepted: so what the carrier forgets, or does twice, is found. All Lockers of this package's tests
// are watched so.
func TestATraceWithoutOneOfItsEventsIsNotAccepted(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]advisory.Config{"dedicated": {LocksPerConn: 1}, "multiplexed": {LocksPerConn: 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var trace *tabletrace.Trace
			synctest.Test(t, func(t *testing.T) { trace = traceOfALocker(t, config) })
			require.NoError(t, trace.Replay())
			// These are times, of which the table makes use later, if at all.
			times := []locktable.EventKind{locktable.EventCapacity, locktable.EventDialFrom, locktable.EventVerified, locktable.EventRested}
			left := 0
			for i, r := range trace.Records() {
				// A wait that looks once more, or less, is a right one too.
				look := r.Kind == locktable.EventNext || r.Kind == locktable.EventStepped && !r.Replies[0].Held
				if slices.Contains(times, r.Kind) || look || r.Kind == locktable.EventCommands && r.Nothing() {
					continue
				}
				left++
				assert.Error(t, trace.Replay(i), "without %d, %v", i, r)
			}
			assert.Greater(t, left, 40, "the control: they were left out")
		})
	}
}

// traceOfALocker is that of one that has locks handed over, waits for another process, takes several locks and a slot, and loses a session.
func traceOfALocker(t *testing.T, config advisory.Config) *tabletrace.Trace {
	t.Helper()
	server := advisorytest.NewServer()
	other, err := server.Open(advisory.Config{})
	require.NoError(t, err)
	l, err := server.Open(config)
	require.NoError(t, err)
	trace := l.Trace()

	first, err := other.Acquire(t.Context(), entity(1))
	require.NoError(t, err)
	for range 3 {
		go func() {
			lock, err := l.Acquire(t.Context(), entity(1))
			if assert.NoError(t, err) {
				bubble.Sleep(time.Millisecond)
				assert.NoError(t, lock.Release())
			}
		}()
	}
	bubble.Sleep(time.Second)
	require.NoError(t, first.Release())
	bubble.Sleep(time.Second)
	both, err := l.AcquireAll(t.Context(), entity(2), entity(3))
	require.NoError(t, err)
	slot, err := l.AcquireSlot(t.Context(), entity(4), 2)
	require.NoError(t, err)
	server.KillSessions()
	bubble.Sleep(time.Second)
	<-both.Lost()
	<-slot.Lost()
	l.Close()
	other.Close()
	return trace
}
