package lockserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

// untold is how long a wait is not reported.
const untold = time.Second

// tellOfWait logs that a command waits, and the holder of the lock, unless stop comes first. share is for one of
// several leases of the lock.
func tellOfWait(ctx context.Context, app *program.App, client *leasehttp.Client, name string, share bool) (stop func()) {
	return background.Run(ctx, func(ctx context.Context) {
		if pause.For(ctx, untold) != nil {
			return
		}
		attributes := []slog.Attr{slog.String("lock", name)}
		holder, err := holderOf(ctx, client, name, share)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			attributes = append(attributes, slog.Any("error", err))
		case holder.State == lease.Held:
			attributes = append(attributes, slog.String("held_by", holder.Holder), slog.Duration("since", time.Since(holder.AcquiredAt).Round(time.Second)),
				slog.Duration("ends_in", holder.Remaining.Round(time.Second)))
		}
		app.Logger().LogAttrs(ctx, slog.LevelInfo, "waiting for the lock", attributes...)
	})
}

// holderOf returns the holder of a lock, or the first of several.
func holderOf(ctx context.Context, client *leasehttp.Client, name string, share bool) (lease.Record, error) {
	if !share {
		return client.Get(ctx, name)
	}
	for r, err := range client.List(ctx, lease.ListRequest{Prefix: shared.Prefix(name)}) {
		if err != nil || r.State == lease.Held {
			return r, err
		}
	}
	return lease.Record{}, nil
}
