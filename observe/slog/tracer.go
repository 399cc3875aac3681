package slog

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// A Config sets which acquisitions are logged.
type Config struct {
	// Slow is the shortest wait that is logged. 0 = 1 s; negative = every request.
	Slow time.Duration
	// Long is the shortest hold that is logged, when the lock is released. 0 = 1 min; negative = every
	// one.
	Long time.Duration
}

// Tracer returns the Tracer for an advisory.Config, for any number of Lockers. To combine it with another
// Tracer, use advisory.MultiTracer.
func Tracer(log *slog.Logger, c Config) advisory.Tracer {
	slow, long := cmp.Or(c.Slow, time.Second), cmp.Or(c.Long, time.Minute)
	return advisory.Tracer{
		Acquire: func(ctx context.Context, d advisory.AcquireData) {
			switch {
			case d.Waited < slow:
			case d.Err != nil:
				log.LogAttrs(ctx, slog.LevelInfo, "lock not acquired", attrs(d.Key, d.Label, slog.Duration("waited", d.Waited), slog.Any("error", d.Err))...)
			default:
				log.LogAttrs(ctx, slog.LevelInfo, "lock acquired after a wait", attrs(d.Key, d.Label, slog.Duration("waited", d.Waited))...)
			}
		},
		Release: func(ctx context.Context, d advisory.ReleaseData) {
			if d.Held >= long && d.Err == nil { // an error would be a loss
				log.LogAttrs(ctx, slog.LevelInfo, "lock held for long", attrs(d.Key, d.Label, slog.Duration("held", d.Held))...)
			}
		},
		Loss: func(ctx context.Context, d advisory.LossData) {
			log.LogAttrs(ctx, slog.LevelWarn, "lock lost",
				attrs(d.Key, d.Label, slog.Duration("held", d.Held), slog.String("reason", d.Reason), slog.Any("error", d.Err.Cause))...)
		},
	}
}

// attrs returns the attributes of every record about a lock, followed by more.
func attrs(key namespace.Key, label string, more ...slog.Attr) []slog.Attr {
	all := []slog.Attr{slog.String("key", key.String())}
	if label != "" {
		all = append(all, slog.String("label", label))
	}
	return append(all, more...)
}
