package agents

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Work runs the background workers until ctx ends, and returns when they have stopped.
func (a *App) Work(ctx context.Context) {
	var running sync.WaitGroup
	for _, w := range a.workers {
		running.Go(func() { w.run(ctx, a.config.WorkerInterval) })
	}
	running.Wait()
}

// shutdownTimeout limits how long requests may still run after ctx ends.
const shutdownTimeout = 10 * time.Second

// Serve answers requests on listener and runs the background workers until ctx ends. Then it
// waits at most 10 s for running requests. On an address that is not loopback it refuses to
// start without Config.Tokens. It closes listener.
func (a *App) Serve(ctx context.Context, listener net.Listener) error {
	if err := a.tokens.checkAddress(listener.Addr().String()); err != nil {
		return errors.Join(err, listener.Close())
	}
	a.config.Logger.InfoContext(ctx, "listening", slog.String("address", listener.Addr().String()))
	ctx, stop := context.WithCancel(ctx)
	server := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(a.broadcaster.Close) // without this, streams of events would not end

	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { a.Work(ctx) })
	var shutdownErr error
	done := make(chan struct{})
	running.Go(func() {
		defer close(done)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		shutdownErr = server.Shutdown(grace)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-done
	return shutdownErr
}
