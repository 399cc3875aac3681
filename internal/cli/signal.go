package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// WithSignals returns a context that SIGINT or SIGTERM ends, with a *SignalError
// as its cause. Signals that the process was started to ignore, as by a shell that
// runs it in the background, stay ignored. After the first signal they have their
// usual effect again, so that a second one ends the process at once, unless a
// command listens for them too. stop ends the listening.
func WithSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if !signal.Ignored(s) { // else a child would not ignore it any more
			signal.Notify(signals, s)
		}
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(&SignalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		listening.Wait()
	}
}
