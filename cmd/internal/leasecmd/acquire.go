package leasecmd

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

// firstContact is how long a command that waits for a lock without a bound tries to reach a server.
// A restarting server is back by then, and the command does not wait forever for a wrong address.
const firstContact = 30 * time.Second

// acquire acquires a lease. It waits for the lease, and for the server, as w says.
func (t *terms) acquire(ctx context.Context, app *program.App, client *leasehttp.Client, w program.Waiting, name string) (*leasehttp.Lease, error) {
	o := t.AcquireOptions
	o.MaxWait = -1
	end := time.Now().Add(firstContact)
	if w.Bounded {
		end = time.Now().Add(w.Wait)
	}
	if w.Once() {
		o.NoLongPoll, o.MaxAttempts = true, 1
	} else { // a server that never answers must not use up the client's own timeout
		usable := watching{app: app, client: client, name: name}
		if _, err := usable.next(ctx, nil, end); err != nil {
			return nil, err
		}
	}
	if w.Bounded && w.Wait > 0 {
		o.MaxWait = max(time.Until(end), time.Nanosecond)
	}
	share := o.Slots > 0 || o.Shared || o.Exclusive
	stop := app.TellWait(ctx, slog.String("lock", name), func(ctx context.Context) []slog.Attr {
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
	defer stop()
	return client.AcquireWithRetry(ctx, name, ownerName(t.owner), o)
}

// holderOf returns the holder of a lock, or the first of several. share is for one of several leases of the lock.
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
