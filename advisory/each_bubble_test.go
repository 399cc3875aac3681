package advisory_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

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
		time.Sleep(time.Second)
		_ = first.Release()
	}()
	release(l.Acquire(ctx, entity(1))) // waits
	_, _ = l.Acquire(ctx, entity(2))
	time.Sleep(time.Second)
	w.server.KillSessions()
	time.Sleep(time.Second)
	l.Close()
	synctest.Wait()
	assert.True(w, called.Load(), "the callback was called")
	assert.True(w, through.Load(), "what it called has returned")
}
