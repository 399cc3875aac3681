package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// AcquireWait is an Acquire that returns *lease.HeldError only when wait is over. It watches the
// name, and tries again when the lease was released or has expired, or a delay is over. All
// waiters for one name then try, in no particular order.
func (s *Store) AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	end := time.Now().Add(wait)
	for {
		l, err := s.Acquire(ctx, r)
		if !errors.Is(err, lease.ErrHeld) || !time.Now().Before(end) {
			return l, err
		}
		watching, cancel := context.WithDeadline(ctx, end)
		if !s.changed(watching, r.Name) {
			_ = pause.For(watching, rewatch) // its stream ended
		}
		cancel()
		if ctx.Err() != nil {
			return l, undone(ctx, context.Cause(ctx))
		}
	}
}

// rewatch is the pause before another watch, after one failed.
const rewatch = 250 * time.Millisecond

// changed blocks until a mark of a name is gone; false if it cannot tell.
func (s *Store) changed(ctx context.Context, name string) bool {
	v, err := s.look(clientv3.WithRequireLeader(ctx), name)
	if err != nil {
		return false
	}
	if v.row.Token == 0 || !v.held() && !v.marks[delayed].set() && !v.marks[kept].set() {
		return true
	}
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := s.client.Watch(watching, s.key(name, recordKey), clientv3.WithRange(s.config.Prefix+name+behind), clientv3.WithRev(v.header.Revision+1), clientv3.WithFilterPut())
	for r := range events {
		if r.Err() != nil {
			return false
		}
		if len(r.Events) > 0 {
			return true
		}
	}
	return ctx.Err() != nil
}
