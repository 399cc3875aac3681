package child

import (
	"context"
	"os"
	"sync"
	"syscall"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

// WithSignals returns a context that SIGINT or SIGTERM ends, with a *SignalError as its cause.
// Signals that the process was started to ignore, as by a shell that runs it in the background,
// stay ignored. After the first signal they have their usual effect again: a second one ends the
// process at once, unless a command listens for them too. stop ends the listening.
func WithSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, unlisten := supervise.NotifyOf(syscall.SIGINT, syscall.SIGTERM)
	asked := make(chan chan struct{}) // listen asks whether a signal has arrived
	ctx = context.WithValue(ctx, listenKey{}, asked)
	var listening sync.WaitGroup
	listening.Go(func() {
		defer unlisten()
		for {
			select {
			case s := <-signals:
				cancel(&program.SignalError{Signal: s.(syscall.Signal)})
				return
			case answer := <-asked:
				select {
				case s := <-signals:
					cancel(&program.SignalError{Signal: s.(syscall.Signal)})
				default:
				}
				close(answer)
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		listening.Wait()
	}
}

type listenKey struct{}

// Listen is supervise.Notify for a command under the context of WithSignals. When it returns, a
// signal that arrived too early for the command has ended the context.
func Listen(ctx context.Context) (signals <-chan os.Signal, stop func()) {
	signals, stop = supervise.Notify()
	if asked, ok := ctx.Value(listenKey{}).(chan chan struct{}); ok {
		answer := make(chan struct{})
		select {
		case asked <- answer:
			<-answer
		case <-ctx.Done():
		}
	}
	return signals, stop
}
