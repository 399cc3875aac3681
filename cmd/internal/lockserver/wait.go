package lockserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

// tellOfWait logs that a command waits, and the holder of the lock, unless stop comes first. share is for one of
// several leases of the lock.
func tellOfWait(ctx context.Context, app *program.App, client *leasehttp.Client, name string, share bool) (stop func()) {
	return app.TellWait(ctx, slog.String("lock", name), func(ctx context.Context) []slog.Attr {
		holder, err := holderOf(ctx, client, name, share)
		switch {
		case err != nil:
			return []slog.Attr{slog.Any("error", err)}
		case holder.State == lease.Held:
			return []slog.Attr{
				slog.String("held_by", holder.Holder), slog.Duration("since", time.Since(holder.AcquiredAt).Round(time.Second)),
				slog.Duration("ends_in", holder.Remaining.Round(time.Second)),
			}
		}
		return nil
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
