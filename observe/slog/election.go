package slog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// Watch logs the start and the end of each leadership of an Elector, from now until stop is called.
// stop blocks until the watch has ended; earlier events are logged by then.
func Watch(log *slog.Logger, elector *leader.Elector) (stop func()) {
	log = elector.Logger(log).With(slog.String("identity", elector.Config().Identity))
	var began time.Time
	return background.Read(elector.Events, func(v leader.Event) {
		ctx := context.Background()
		switch v.Kind {
		case leader.EventAcquired:
			began = v.Time
			log.LogAttrs(ctx, slog.LevelInfo, "leadership acquired", term(v.Term)...)
		case leader.EventRecovered:
			log.LogAttrs(ctx, slog.LevelInfo, "leadership recovered", term(v.Term)...)
		case leader.EventReleased:
			log.LogAttrs(ctx, slog.LevelInfo, "leadership released", ending(v, began)...)
		case leader.EventLost:
			log.LogAttrs(ctx, slog.LevelWarn, "leadership taken away", ending(v, began)...)
		case leader.EventStateChange, leader.EventAcquireFailed, leader.EventError, leader.EventStopped, leader.EventNewLeader: // the Elector logs them
		}
	})
}

func ending(v leader.Event, began time.Time) []slog.Attr {
	all := term(v.Term)
	if !began.IsZero() {
		all = append(all, slog.Duration("led", v.Time.Sub(began)))
	}
	if v.Err != nil {
		if lost, ok := errors.AsType[*leader.LostError](v.Err); ok {
			v.Err = lost.Cause
		}
		all = append(all, slog.Any("error", v.Err))
	}
	return all
}

// term returns the attributes of a term, without the fencing token if there is none.
func term(t leader.Term) []slog.Attr {
	all := []slog.Attr{slog.String("term", t.String())}
	if !t.IsZero() {
		all = append(all, slog.Uint64("fencing_token", t.Uint64()))
	}
	return all
}
