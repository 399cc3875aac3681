package leasehttp

import (
	"context"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A together holds the heartbeats of a client that wait for their next renewal. The first
// heartbeat that is due also renews the leases of those that are due soon.
type together struct {
	mu      sync.Mutex
	waiting map[*heartbeat]struct{}
}

// enter adds a heartbeat that is due after d, so that others can renew it earlier. The channel
// receives the result in that case.
func (t *together) enter(h *heartbeat, d time.Duration) <-chan error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = make(map[*heartbeat]struct{})
	}
	h.due = lease.Now().Add(d)
	renewed := make(chan error, 1)
	h.renewed = renewed
	t.waiting[h] = struct{}{}
	return renewed
}

func (t *together) leave(h *heartbeat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, h)
}

// A member is a heartbeat that waits for the result of one shared renewal.
type member struct {
	*heartbeat
	answered chan<- error
}

// gather returns first, which is due, and the heartbeats to renew with it; none if another
// heartbeat has already included first.
func (t *together) gather(first *heartbeat) []member {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.waiting[first]; !ok {
		return nil
	}
	all := []member{{first, first.renewed}}
	delete(t.waiting, first)
	remaining := first.lease.Remaining()
	for h := range t.waiting {
		if len(all) == wire.MaxBatch {
			break
		}
		if h.due.Remaining() <= h.Interval/4 && alike(remaining, h.lease.Remaining()) {
			all = append(all, member{h, h.renewed})
			delete(t.waiting, h)
		}
	}
	return all
}

// alike reports whether two leases can be trusted for about as long. A request for both ends when
// the first of them ends, and its failover to other servers is timed for it.
func alike(a, b time.Duration) bool { return min(a, b) > 0 && min(a, b) >= max(a, b)/4*3 }

// renewTogether renews the leases of gathered heartbeats in one go.
func (c *Client) renewTogether(all []member) {
	requests := make([]lease.RenewRequest, len(all))
	remaining := all[0].lease.Remaining()
	for i, h := range all {
		requests[i] = h.request()
		remaining = min(remaining, h.lease.Remaining())
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, remaining, errEnds)
	defer cancel()
	c.renewAll(ctx, requests, func(i int, r renewal) { all[i].answered <- all[i].take(r) })
}
