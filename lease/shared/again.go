package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// errEarlier ends the wait at the gate if an earlier sending of the request has a slot.
var errEarlier = errors.New("another sending of the request got a slot")

// vouch records in the slot that it belongs to the request, so that other sendings of the request
// find it. If vouch fails, they find it only at the gate.
func (q *request) vouch(s Share) (Share, error) {
	if s.Metadata[markKey] == "" { // no request is sent again, or there is no room
		return s, nil
	}
	if fence := fenceOf(s.Metadata); fence != 0 { // another sending did
		s.Fence = fence
		return s, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.ctx), cleanup)
	defer cancel()
	asked := lease.Now()
	l, err := q.config.Store.Renew(ctx, lease.RenewRequest{Claim: s.Claim, TTL: q.TTL, Metadata: fenced(s.Metadata, s.Fence)})
	switch {
	case lease.IsOver(err):
		return Share{}, fmt.Errorf("%w: %w", errSlotLost, err)
	case err == nil:
		s.Lease, s.Asked = l, asked
	}
	return s, nil
}

// earlier returns the share that an earlier sending of the request has got; nil if that is not
// certain. It needs no gate: the writer of the slot's Fence had it.
func (q *request) earlier(ctx context.Context) *Share {
	if q.IdempotencyKey == "" || q.Exclusive {
		return nil
	}
	looking := *q
	looking.ctx = ctx
	v, err := looking.look()
	if err != nil {
		return nil
	}
	for _, slot := range v.mine(q.Request) {
		record := v.slots[slot]
		fence := fenceOf(record.Metadata)
		if fence == 0 {
			continue
		}
		r := q.AcquireRequest
		r.Name, r.Metadata = record.Name, q.marked()
		asked := lease.Now()
		l, err := q.config.Store.Acquire(ctx, r)
		if err == nil && l.ID == record.ID {
			l.Metadata = unmarked(l.Metadata)
			return &Share{Lease: l, Lock: q.Name, Slot: slot, Fence: fence, Asked: asked}
		}
		// If the observed lease ended in between, do not take the new one: it was acquired
		// without the gate. Do not release it either: another sending may have returned it.
	}
	return nil
}

// standAtGate waits for the gate. At growing intervals, it checks whether an earlier sending has
// got a slot, because the keeper of the gate may wait for that slot.
func (q *request) standAtGate(r lease.AcquireRequest, wait time.Duration) (l lease.Lease, err error) {
	if q.IdempotencyKey == "" || q.Exclusive {
		return q.acquireWait(q.ctx, r, wait)
	}
	ctx, cancel := context.WithCancelCause(q.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for d := q.config.PollInterval; pause.For(ctx, d) == nil; d *= 2 {
			if s := q.earlier(ctx); s != nil {
				q.got = s
				cancel(errEarlier)
				return
			}
		}
	})
	l, err = q.acquireWait(ctx, r, wait)
	cancel(nil)
	wg.Wait()
	return l, err
}
