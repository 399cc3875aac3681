package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// shutdownTimeout limits how long requests may still run after ctx ends.
const shutdownTimeout = 10 * time.Second

// Serve starts the node and serves until ctx ends. Every node takes part in the election,
// answers requests on listener, works on jobs, sends heartbeats and reconciles. The leader
// also runs the schedulers. At the end Serve hands leadership over as soon as the schedulers
// have stopped. Meanwhile running requests get 10 s to end.
func (n *Node) Serve(ctx context.Context, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := n.services.Run(ctx); err != nil {
			n.config.Logger.Error("election_ended", slog.Any("error", err))
		}
	})
	for _, s := range []struct {
		name     string
		interval time.Duration
		run      func(context.Context) error
	}{
		{"heartbeat", n.config.HeartbeatInterval, n.beat},
		{"reconciliation", n.config.HeartbeatInterval, n.reconcile},
		{"jobs", n.config.JobInterval, n.work},
	} {
		running.Go(func() { every(ctx, s.interval, n.config.Logger.With(slog.String("service", s.name)), s.run) })
	}

	server := &http.Server{Handler: n.Handler(), ReadHeaderTimeout: 10 * time.Second}
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
