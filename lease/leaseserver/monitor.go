package leaseserver

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// Monitor sweeps the store until ctx ends, and maintains locks_held and lock_expired_total. If a
// sweep leaves more to do, the next one follows at once. Monitor logs sweeps with their latency: at
// level Info if they changed something, else at Debug. It follows the Election, if there is one. If
// the store is a lease.Messenger, Monitor receives the messages of other servers. Serve runs Monitor;
// call it only in a program that serves the Handler itself.
func (s *Server) Monitor(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.forwarder != nil {
		wg.Go(func() { s.forwarder.run(ctx) })
	}
	wg.Go(func() { s.meter.feed.run(ctx) })
	ticker := time.NewTicker(s.SweepInterval)
	defer ticker.Stop()
	for {
		s.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// round sweeps as long as there is more to do, until the next round is due, so that a backlog is
// logged, too. Between two sweeps, other operations can run.
func (s *Server) round(ctx context.Context) {
	start := time.Now()
	var total lease.SweepResult
	for sweeps := 1; ; sweeps++ {
		result, err := s.meter.sweep(ctx, lease.SweepRequest{Retention: s.Retention})
		s.metrics.expired.Add(float64(result.Expired)) // includes the part that was done before an error
		latency := slog.Float64("latency_ms", math.Round(time.Since(start).Seconds()*1e6)/1e3)
		if err != nil {
			s.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep_failed", latency, slog.Any("error", err))
			return
		}
		s.metrics.held.Set(float64(result.Held))
		total.Expired += result.Expired
		total.Removed += result.Removed
		if result.More && ctx.Err() == nil && time.Since(start) < s.SweepInterval {
			continue
		}
		level := slog.LevelDebug
		if total.Expired+total.Removed > 0 {
			level = slog.LevelInfo
		}
		s.Logger.LogAttrs(ctx, level, "sweep", latency, slog.Int("sweeps", sweeps),
			slog.Int("held", result.Held), slog.Int("expired", total.Expired), slog.Int("removed", total.Removed))
		return
	}
}
