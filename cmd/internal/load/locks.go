package load

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// OfServer drives a lock server. Clients wait in the server's line.
func OfServer(c *leasehttp.Client) Locks { return serverLocks{c} }

type serverLocks struct{ *leasehttp.Client }

func (s serverLocks) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, time.Time, error) {
	l, err := s.AcquireWithRetry(ctx, r.Name, r.Holder, leasehttp.AcquireOptions{TTL: r.TTL})
	if err != nil {
		return lease.Lease{}, time.Time{}, err
	}
	now := time.Now() // before Remaining: the process may be stopped in between
	return l.Last(), now.Add(l.Remaining()), nil
}
