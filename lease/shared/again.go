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

// errEarlier ends the wait at the gate when an earlier sending of the request has a slot.
var errEarlier = errors.New("another sending of the request got a slot")

// vouch writes into the slot that it is the request's, for other sendings of it. Where it
// cannot, they learn it only at the gate.
func (q *request) vouch(s Share) (Share, error) {
	if s.Metadata[markKey] == "" { // nothing is sent again, or there is no room
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
	case isLost(err):
		return Share{}, fmt.Errorf("%w: %w", errSlotLost, err)
	case err == nil:
		s.Lease, s.Asked = l, asked
	}
	return s, nil
}

// earlier returns the share that an earlier sending of the request has got; nil if that is not
// certain. It needs no gate: whoever wrote the slot's Fence had it.
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
		// A new lease, because the one that was seen ended in between, is not taken: it was got
		// without the gate. Nor is it released: another sending may have been told of it.
	}
	return nil
}

// standAtGate waits for the gate, and looks from time to time, ever less often, whether an earlier
// sending has got a slot: those who keep the gate meanwhile wait for such a slot.
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
