package slog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/advisory"
)

// A Config says which acquisitions are worth a record.
type Config struct {
	// Slow is the wait from which a request is logged. 0 = 1 s; negative = each request.
	Slow time.Duration
	// Long is the time from which a held lock is logged, when it is released. 0 = 1 min; negative = each.
	Long time.Duration
}

// Tracer returns what an advisory.Config takes, for any number of Lockers. advisory.JoinTracers
// adds it to another Tracer.
func Tracer(log *slog.Logger, c Config) advisory.Tracer {
	slow, long := cmp.Or(c.Slow, time.Second), cmp.Or(c.Long, time.Minute)
	return advisory.Tracer{
		Acquire: func(ctx context.Context, d advisory.TraceData) {
			switch {
			case d.Waited < slow:
			case d.Err != nil:
				log.LogAttrs(ctx, slog.LevelInfo, "lock not acquired", attrs(d, slog.Duration("waited", d.Waited), slog.Any("error", d.Err))...)
			default:
				log.LogAttrs(ctx, slog.LevelInfo, "lock acquired after a wait", attrs(d, slog.Duration("waited", d.Waited))...)
			}
		},
		Release: func(ctx context.Context, d advisory.TraceData) {
			if d.Held >= long && d.Err == nil { // else it was a loss
				log.LogAttrs(ctx, slog.LevelInfo, "lock held for long", attrs(d, slog.Duration("held", d.Held))...)
			}
		},
		Loss: func(ctx context.Context, d advisory.TraceData) {
			reason, cause := advisory.LossConnection, d.Err
			if lost, ok := errors.AsType[*advisory.LostError](d.Err); ok {
				reason, cause = lost.Reason(), lost.Cause
			}
			log.LogAttrs(ctx, slog.LevelWarn, "lock lost",
				attrs(d, slog.Duration("held", d.Held), slog.String("reason", string(reason)), slog.Any("error", cause))...)
		},
	}
}

// attrs are what each record about a lock has, and more.
func attrs(d advisory.TraceData, more ...slog.Attr) []slog.Attr {
	all := []slog.Attr{slog.String("key", d.Key.String())}
	if d.Label != "" {
		all = append(all, slog.String("label", d.Label))
	}
	return append(all, more...)
}
