package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
)

// ends are the ways in which a function of the program does not return.
var ends = map[string]func(){
	"panics":             func() { panic("hostile") },
	"ends its goroutine": runtime.Goexit, // as FailNow of a test does
}

// survive runs a call on a goroutine of its own, and reports whether it returned.
func survive(call func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		call()
		returned = true
	}()
	<-done
	return returned
}

// A hostileContext calls a function before each of its methods.
type hostileContext struct {
	context.Context
	call func()
}

func (c hostileContext) Err() error {
	c.call()
	return c.Context.Err()
}

func (c hostileContext) Done() <-chan struct{} {
	c.call()
	return c.Context.Done()
}

func (c hostileContext) Value(key any) any {
	c.call()
	return c.Context.Value(key)
}

func (c hostileContext) Deadline() (time.Time, bool) {
	c.call()
	return c.Context.Deadline()
}

// acquisitions are all ways to lock entity 1.
var acquisitions = map[string]func(ctx context.Context, l *advisory.Locker) error{
	"Acquire": func(ctx context.Context, l *advisory.Locker) error { return give(l.Acquire(ctx, entity(1))) },
	"shared": func(ctx context.Context, l *advisory.Locker) error {
		return give(l.With(shared).Acquire(ctx, entity(1)))
	},
	"TryAcquire": func(ctx context.Context, l *advisory.Locker) error { return give(l.TryAcquire(ctx, entity(1))) },
	"AcquireAll": func(ctx context.Context, l *advisory.Locker) error {
		return give(l.AcquireAll(ctx, entity(1), entity(2), entity(3)))
	},
	"AcquireSlot": func(ctx context.Context, l *advisory.Locker) error { return give(l.AcquireSlot(ctx, entity(1), 2)) },
	"Do":          func(ctx context.Context, l *advisory.Locker) error { return l.Do(ctx, entity(1), nothing) },
	"DoOrSkip": func(ctx context.Context, l *advisory.Locker) error {
		_, err := l.DoOrSkip(ctx, entity(1), nothing)
		return err
	},
}

func give(lock *advisory.Lock, err error) error {
	if err != nil {
		return err
	}
	return lock.Release()
}

// Each method of a context does not return, once in each call of it that an acquisition makes. The last round has so many calls
// that none is hostile.
func TestAContextThatPanicsLeavesNoLock(t *testing.T) {
	t.Parallel()
	for how, end := range ends {
		for name, acquire := range acquisitions {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprint(how, "/", name, "/waits=", waits), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(w *world) {
						l, other := w.open(advisory.Config{}), w.open(advisory.Config{})
						for round := 1; ; round++ {
							calls := 0
							ctx := hostileContext{w.Context(), func() {
								if calls++; calls == round {
									end()
								}
							}}
							if waits {
								first := w.acquire(other, 1)
								time.AfterFunc(time.Second, func() { assert.NoError(w, first.Release()) })
							}
							returned := survive(func() { _ = acquire(ctx, l) })
							bubble.Sleep(2 * time.Second)
							w.assertIdle(l)
							assert.Empty(w, w.server.Locked(), "in round %d", round)
							if w.Failed() || returned && calls < round {
								assert.Greater(w, round, 3, "the context was used")
								return
							}
						}
					})
				})
			}
		}
	}
}

// A hostileTracer calls a function in one of a Tracer's functions.
func hostileTracer(in string, call func()) (t advisory.Tracer) {
	switch in {
	case "Open":
		t.Open = func(*advisory.Locker) func() { call(); return nil }
	case "closed":
		t.Open = func(*advisory.Locker) func() { return call }
	case "Wait":
		t.Wait = func(context.Context, advisory.WaitData) { call() }
	case "Acquire":
		t.Acquire = func(context.Context, advisory.AcquireData) { call() }
	case "Release":
		t.Release = func(context.Context, advisory.ReleaseData) { call() }
	case "Loss":
		t.Loss = func(context.Context, advisory.LossData) { call() }
	}
	return t
}

func TestATracerThatDoesNotReturnLeavesNoLock(t *testing.T) {
	t.Parallel()
	for how, end := range ends {
		for _, in := range []string{"Open", "closed", "Wait", "Acquire", "Release", "Loss"} {
			for name, acquire := range acquisitions {
				t.Run(how+"/"+in+"/"+name, func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(w *world) {
						var called atomic.Int64
						tracer := hostileTracer(in, func() { called.Add(1); end() })
						other := w.open(advisory.Config{})
						var l *advisory.Locker
						if !survive(func() { l, _ = openOn(w.server, w.config(advisory.Config{Tracer: tracer})) }) {
							assert.Positive(w, called.Load())
							return // nothing of the Locker is left, or the bubble would not end
						}
						first := w.acquire(other, 1)
						time.AfterFunc(time.Second, func() { assert.NoError(w, first.Release()) })
						survive(func() { _ = acquire(w.Context(), l) })
						bubble.Sleep(2 * time.Second)
						w.assertIdle(l)
						survive(func() { _ = acquire(w.Context(), l) })
						w.assertIdle(l)
						assert.Empty(w, w.server.Locked())
						w.release(w.acquire(other, 1))
						survive(l.Close)
						synctest.Wait()
						assert.Zero(w, l.Stats().Sessions)
						if !slices.Contains([]string{"Wait", "Loss"}, in) {
							assert.Positive(w, called.Load())
						}
					})
				})
			}
		}
	}
}

func TestALoggerThatPanicsEndsNothing(t *testing.T) {
	t.Parallel()
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				var called atomic.Int64
				l := w.open(advisory.Config{Logger: slog.New(lossLog{func() { called.Add(1); end() }})})
				for range 2 {
					lock, another := w.acquire(l, 1), w.acquire(l, 2)
					w.server.KillSessions()
					<-lock.Lost()
					<-another.Lost()
					require.ErrorIs(w, lock.Release(), advisory.ErrLost)
					require.ErrorIs(w, another.Release(), advisory.ErrLost)
				}
				outer := w.acquire(l, 1)
				ran, err := l.DoOrSkip(outer.Context(), entity(1), nothing)
				require.NoError(w, err)
				assert.False(w, ran)
				w.release(outer)
				synctest.Wait()
				assert.Equal(w, int64(5), called.Load())
			})
		})
	}
}

// The contexts of all holders of a lost connection end, whatever a context of one of them does.
func TestAContextThatDoesNotReturnHidesNoLoss(t *testing.T) {
	t.Parallel()
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubbleOf(t, many, func(w *world) {
				l := w.open(advisory.Config{})
				var hostile atomic.Bool
				var locks []*advisory.Lock
				var derived []context.Context
				for i := range int64(5) {
					lock, err := l.Acquire(valueFunc{w.Context(), func() {
						if hostile.Load() {
							end()
						}
					}}, entity(i))
					require.NoError(w, err)
					ctx, cancel := context.WithCancel(lock.Context())
					defer cancel()
					locks, derived = append(locks, lock), append(derived, ctx)
				}
				bubble.Sleep(time.Second) // the connection is watched by now
				hostile.Store(true)
				w.server.KillSessions()
				synctest.Wait()
				hostile.Store(false)
				for i, lock := range locks {
					assert.ErrorIs(w, context.Cause(derived[i]), advisory.ErrLost)
					require.ErrorIs(w, lock.Release(), advisory.ErrLost)
				}
			})
		})
	}
}

func TestADeadlineBeforeTheAnswerIsTheCause(t *testing.T) {
	t.Parallel()
	errHurry := errors.New("hurry")
	inBubble(t, func(w *world) {
		l, f := w.openFaulty(advisory.Config{})
		w.release(w.acquire(l, 2)) // there is a connection
		f.onTry = func(namespace.Tag) error { bubble.Sleep(10 * time.Second); return nil }
		for _, cause := range []error{context.DeadlineExceeded, errHurry} {
			ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, cause)
			_, err := l.Acquire(ctx, entity(1))
			cancel()
			require.ErrorIs(w, err, cause)
			require.ErrorIs(w, err, advisory.ErrUnavailable)
			require.NotContains(w, err.Error(), "the connection ended")
			bubble.Sleep(time.Minute)
		}
		_, err := l.With(advisory.Options{Wait: time.Second}).Acquire(w.Context(), entity(1))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.ErrorContains(w, err, "no answer from the server within")
		bubble.Sleep(time.Minute)
	})
}

// lockerCalls are all methods of a Locker, as a callback may call them, and lockCalls those of a lock that it holds.
var (
	lockerCalls = map[string]func(l *advisory.Locker, ctx context.Context){
		"Acquire":     func(l *advisory.Locker, ctx context.Context) { release(l.Acquire(ctx, entity(50))) },
		"AcquireAll":  func(l *advisory.Locker, ctx context.Context) { release(l.AcquireAll(ctx, entity(51), entity(52))) },
		"AcquireSlot": func(l *advisory.Locker, ctx context.Context) { release(l.AcquireSlot(ctx, entity(53), 2)) },
		"TryAcquire":  func(l *advisory.Locker, ctx context.Context) { release(l.TryAcquire(ctx, entity(54))) },
		"Do":          func(l *advisory.Locker, ctx context.Context) { _ = l.Do(ctx, entity(55), nothing) },
		"DoOrSkip":    func(l *advisory.Locker, ctx context.Context) { _, _ = l.DoOrSkip(ctx, entity(56), nothing) },
		"With": func(l *advisory.Locker, ctx context.Context) {
			release(l.With(advisory.Options{Shared: true}).Acquire(ctx, entity(57)))
		},
		"Held": func(l *advisory.Locker, _ context.Context) {
			for range l.Held() { // each is described
			}
		},
		"Stats": func(l *advisory.Locker, _ context.Context) { l.Stats() },
		"Close": func(l *advisory.Locker, _ context.Context) { l.Close() },
	}
	lockCalls = map[string]func(l *advisory.Lock){
		"Asked":   func(l *advisory.Lock) { l.Asked() },
		"Context": func(l *advisory.Lock) { _ = l.Context().Err() },
		"Key":     func(l *advisory.Lock) { l.Key() },
		"Keys":    func(l *advisory.Lock) { l.Keys() },
		"Lost":    func(l *advisory.Lock) { l.Lost() },
		"PID":     func(l *advisory.Lock) { l.PID() },
		"Release": func(l *advisory.Lock) { _ = l.Release() },
		"Shared":  func(l *advisory.Lock) { l.Shared() },
	}
)

func release(l *advisory.Lock, err error) {
	if err == nil {
		_ = l.Release()
	}
}

// callbacks are all functions of the program's that a Locker calls.
func callbacks(call func()) map[string]advisory.Config {
	return map[string]advisory.Config{
		"Tracer.Open":    {Tracer: advisory.Tracer{Open: func(*advisory.Locker) func() { call(); return nil }}},
		"closed":         {Tracer: advisory.Tracer{Open: func(*advisory.Locker) func() { return call }}},
		"Tracer.Wait":    {Tracer: advisory.Tracer{Wait: func(context.Context, advisory.WaitData) { call() }}},
		"Tracer.Acquire": {Tracer: advisory.Tracer{Acquire: func(context.Context, advisory.AcquireData) { call() }}},
		"Tracer.Release": {Tracer: advisory.Tracer{Release: func(context.Context, advisory.ReleaseData) { call() }}},
		"Tracer.Loss":    {Tracer: advisory.Tracer{Loss: func(context.Context, advisory.LossData) { call() }}},
		"Logger":         {Logger: slog.New(lossLog{call})},
		"Context.Value":  {},
	}
}

func TestEachMethodMayBeCalledFromEachCallback(t *testing.T) {
	t.Parallel()
	for _, method := range methods(t, "Locker") {
		require.Contains(t, lockerCalls, method)
	}
	for _, method := range methods(t, "Lock") {
		require.Contains(t, lockCalls, method)
	}
	for callback := range callbacks(func() {}) {
		t.Run(callback, func(t *testing.T) {
			t.Parallel()
			for method, call := range lockerCalls {
				inBubble(t, func(w *world) {
					w.Log(method)
					callFrom(w, callback, func(l *advisory.Locker, _ *advisory.Lock) { call(l, context.Background()) })
				})
			}
			for method, call := range lockCalls {
				inBubble(t, func(w *world) {
					w.Log(method)
					callFrom(w, callback, func(_ *advisory.Locker, lock *advisory.Lock) { call(lock) })
				})
			}
		})
	}
}

// methods are the exported ones of a type of the package, without those that tests add.
func methods(t *testing.T, of string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func \(\w+ \*` + of + `\) ([A-Z]\w*)\(`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	require.NotEmpty(t, names)
	return names
}

// callFrom makes everything happen that a Locker calls functions of the program's for, and calls f, once, in one of them.
func callFrom(w *world, callback string, f func(*advisory.Locker, *advisory.Lock)) {
	var locker atomic.Pointer[advisory.Locker]
	var lock atomic.Pointer[advisory.Lock]
	var called, through atomic.Bool
	call := func() {
		if l, held := locker.Load(), lock.Load(); l != nil && held != nil && called.CompareAndSwap(false, true) {
			f(l, held)
			through.Store(true)
		}
	}
	other := w.open(advisory.Config{})
	config := callbacks(call)[callback]
	if callback == "Tracer.Open" { // it has a Locker before anybody has a lock
		config.Tracer.Open = func(l *advisory.Locker) func() {
			mine, err := l.Acquire(context.Background(), entity(9))
			require.NoError(w, err)
			locker.Store(l)
			lock.Store(mine)
			call()
			return nil
		}
	}
	l := w.open(config)
	if mine, err := l.Acquire(w.Context(), entity(10)); err == nil && locker.Load() == nil {
		locker.Store(l)
		lock.Store(mine)
	}
	ctx := w.Context()
	if callback == "Context.Value" {
		ctx = valueFunc{ctx, call}
	}
	first := w.acquire(other, 1)
	go func() {
		bubble.Sleep(time.Second)
		_ = first.Release()
	}()
	release(l.Acquire(ctx, entity(1))) // waits
	_, _ = l.Acquire(ctx, entity(2))
	bubble.Sleep(time.Second)
	w.server.KillSessions()
	bubble.Sleep(time.Second)
	l.Close()
	synctest.Wait()
	assert.True(w, called.Load(), "the callback was called")
	assert.True(w, through.Load(), "what it called has returned")
}
