package leasehttp

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// Monitor sweeps the store until ctx ends, keeps locks_held and lock_expired_total,
// and logs each sweep with its latency: as Info if it changed something, else as
// Debug. Serve runs it; only a program that serves the Handler itself needs to.
func (s *Server) Monitor(ctx context.Context) {
	ticker := time.NewTicker(s.SweepInterval)
	defer ticker.Stop()
	for {
		s.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Server) sweep(ctx context.Context) {
	start := time.Now()
	result, err := s.meter.sweep(ctx, lease.SweepRequest{Retention: s.Retention})
	latency := slog.Float64("latency_ms", math.Round(time.Since(start).Seconds()*1e6)/1e3)
	s.metrics.expired.Add(float64(result.Expired)) // also of the part that was done before an error
	if err != nil {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep_failed", latency, slog.Any("err", err))
		return
	}
	s.metrics.held.Set(float64(result.Held))
	level := slog.LevelDebug
	if result.Expired+result.Removed > 0 {
		level = slog.LevelInfo
	}
	s.Logger.LogAttrs(ctx, level, "sweep", latency,
		slog.Int("held", result.Held), slog.Int("expired", result.Expired), slog.Int("removed", result.Removed))
}
