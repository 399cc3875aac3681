package background_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/background"
)

func TestStopEndsTheContextAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		stop := background.Run(t.Context(), func(ctx context.Context) {
			<-ctx.Done()
			ended = true
		})
		synctest.Wait()
		assert.False(t, ended)
		stop()
		assert.True(t, ended)
		stop()
	})
}

func TestAReaderReceivesTheEventsFromBeforeItsStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent, subscribed := make(chan int, 3), false
		var received []int
		stop := background.Read(func(ctx context.Context) iter.Seq[int] {
			subscribed = true
			return func(yield func(int) bool) {
				<-ctx.Done()
				for range len(sent) {
					yield(<-sent)
				}
			}
		}, func(e int) { received = append(received, e) })
		assert.True(t, subscribed, "before Read returned")
		sent <- 1
		sent <- 2
		synctest.Wait()
		stop()
		assert.Equal(t, []int{1, 2}, received)
	})
}

func TestSharedWorkEndsWithTheLastOfItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		shared, cancel := background.WhileAny(t.Context(), []context.Context{first, second})
		defer cancel()
		leave()
		synctest.Wait()
		assert.NoError(t, shared.Err())
		leaveToo()
		synctest.Wait()
		assert.ErrorIs(t, shared.Err(), context.Canceled)
	})
}

func TestSharedWorkEndsWhenItIsDone(t *testing.T) {
	t.Parallel()
	shared, cancel := background.WhileAny(t.Context(), []context.Context{t.Context()})
	cancel()
	assert.ErrorIs(t, shared.Err(), context.Canceled)
}

var errWork = errors.New("no paper")

func TestOutliveReturnsWhateverTheFunctionDoes(t *testing.T) {
	t.Parallel()
	require.NoError(t, background.Outlive(func() error { return nil }))
	require.ErrorIs(t, background.Outlive(func() error { return errWork }), errWork)
	require.ErrorIs(t, background.Outlive(func() error { runtime.Goexit(); return nil }), background.ErrGoexit)
	assert.True(t, background.DidNotReturn(background.ErrGoexit))
	assert.False(t, background.DidNotReturn(errWork))
	err := background.Outlive(func() error { panic("no paper") })
	panicked, ok := errors.AsType[*background.PanicError](err)
	require.True(t, ok)
	assert.Equal(t, "no paper", panicked.Value)
	assert.Equal(t, "no paper", err.Error())
	assert.True(t, background.DidNotReturn(err))
	assert.Contains(t, string(panicked.Stack), t.Name(), "where it panicked")
	require.ErrorIs(t, background.Outlive(func() error { panic(errWork) }), errWork)
}

func TestACallTellsThatItsGoroutineEnds(t *testing.T) {
	t.Parallel()
	never := func(err error) { assert.NoError(t, err) }
	require.ErrorIs(t, background.Call(func() error { return errWork }, never), errWork)
	require.ErrorIs(t, background.Call(func() error { panic(errWork) }, never), errWork)
	done, told := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		_ = background.Call(func() error { runtime.Goexit(); return nil }, func(err error) { told = err })
		told = nil // the goroutine has ended
	}()
	<-done
	assert.ErrorIs(t, told, background.ErrGoexit)
}

func TestEachReachesAllWhateverTheFunctionDoes(t *testing.T) {
	t.Parallel()
	var reached []int
	background.Each([]int{1, 2, 3, 4}, func(n int) {
		reached = append(reached, n)
		switch n {
		case 2:
			panic(errWork)
		case 3, 4:
			runtime.Goexit()
		}
	})
	assert.Equal(t, []int{1, 2, 3, 4}, reached)
}

// A hostileHandler calls a function in each method.
type hostileHandler struct {
	slog.Handler
	call func()
}

func (h hostileHandler) Enabled(context.Context, slog.Level) bool {
	h.call()
	return true
}

func (h hostileHandler) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}

func (h hostileHandler) WithAttrs([]slog.Attr) slog.Handler {
	h.call()
	return h
}

func (h hostileHandler) WithGroup(string) slog.Handler {
	h.call()
	return h
}

func TestALoggerReturnsWhateverItsHandlerDoes(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(){"panics": func() { panic("full") }, "ends its goroutine": runtime.Goexit, "works": func() {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			log := background.Logger(slog.New(hostileHandler{slog.DiscardHandler, func() { calls++; call() }}))
			log.With(slog.Int("n", 1)).WithGroup("g").Error("text")
			_ = log.Handler().Handle(t.Context(), slog.Record{})
			assert.GreaterOrEqual(t, calls, 4)
			assert.Same(t, log, background.Logger(log), "it is protected already")
		})
	}
	assert.Equal(t, slog.DiscardHandler, background.Logger(nil).Handler())
}
