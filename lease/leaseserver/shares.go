package leaseserver

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/shared"
)

// newShares makes the Locker that shares locks among several holders. Its waiters are in the
// server's queues.
func newShares(s *Server) (*shared.Locker, error) {
	poll := s.PollInterval
	if poll < 0 {
		poll = lease.MaxTTL
	}
	var store lease.Store = shareStore{s.queue}
	if s.meter.canHandOver() {
		store = handingStore{shareStore{s.queue}}
	}
	return shared.New(shared.Config{Store: store, PollInterval: poll})
}

// acquireShare answers an acquire of a slot of a lock, or of the whole lock.
func (s *Server) acquireShare(w http.ResponseWriter, r *http.Request, name string, body *wire.AcquireBody, wait time.Duration) error {
	terms := body.Request(name)
	var err error
	if terms.TTL, err = s.ttl(name, terms.TTL); err != nil {
		return err
	}
	request, err := body.ShareRequest(terms)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // even without a wait it can wait at the gate
	start := lease.Now()
	share, err := s.shares.Acquire(r.Context(), request, wait)
	s.metrics.request(opAcquire, err)
	if err != nil {
		return err
	}
	if share.Slot == 0 {
		s.metrics.whole.Inc()
	} else {
		s.metrics.slots.Inc()
	}
	answer := wire.NewLeaseBody(share.Lease)
	answer.Fence, answer.WaitedMS = share.Fence, (callerOf(r).waitedBefore() + share.Asked.Time().Sub(start.Time())).Milliseconds()
	return respond(w, &answer)
}

// checkPlain refuses an ordinary lease on the name of a slot.
func checkPlain(name string) error {
	if shared.IsReserved(name) {
		return wire.Refuse(wire.TypeInvalid, `names that end with "::slot", or with that and a number, are those of slots: ask for the lock, with slots or mode`)
	}
	return nil
}

// A shareStore is the store behind the queue, for shared locks.
type shareStore struct{ queue *queue }

func (s shareStore) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	return s.AcquireWait(ctx, r, 0)
}

// AcquireWait waits in the queue for the name.
func (s shareStore) AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	l, _, err := s.queue.acquire(ctx, r, wait)
	return l, err
}

func (s shareStore) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, err := s.queue.meter.renew(ctx, r)
	if err == nil {
		s.queue.renewed(l)
	}
	return l, err
}

func (s shareStore) Release(ctx context.Context, c lease.Claim) error { return s.queue.release(ctx, c) }

func (s shareStore) Get(ctx context.Context, name string) (lease.Record, error) {
	return s.queue.meter.get(ctx, name)
}

func (s shareStore) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		records, err := s.queue.meter.list(ctx, r)
		for _, record := range records {
			if !yield(record, nil) {
				return
			}
		}
		if err != nil {
			yield(lease.Record{}, err)
		}
	}
}

func (s shareStore) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	return s.queue.meter.sweep(ctx, r)
}

// A handingStore can also hand leases over.
type handingStore struct{ shareStore }

// HandOver is for a request that holds a gate and takes the whole lock. Waiters see the
// name as held throughout.
func (s handingStore) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	asked := boottime.Present()
	s.queue.unconfirm(r.Name)
	l, released, acquired = s.queue.meter.handOver(ctx, r, next, nil)
	if acquired == nil {
		s.queue.granted(next, outcome{lease: l, asked: asked})
	} else if released == nil || wire.KindOf(released).Sentinel == nil { // it may be free
		s.queue.wake(r.Name)
	}
	return l, released, acquired
}

// Watch makes the request that has a lock's gate wait for a slot. await returns when a slot was released, or after d.
func (s shareStore) Watch(ctx context.Context, lock string) (await func(d time.Duration) error, stop func(), err error) {
	q := s.queue
	lq, w := q.join(ctx, lease.AcquireRequest{Name: slotLine(lock)})
	if w == nil {
		return nil, nil, errTooMany()
	}
	await = func(d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-lq.wake:
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-q.closing:
			return &lease.BusyError{Retry: pause.AtMost(time.Second), Cause: errClosing}
		}
		return nil
	}
	stop = func() { q.leave(lq, w, outcome{err: errWatched}) }
	return await, stop, nil
}

// errWatched is the outcome of a waiter that asks for no lease.
var errWatched = errors.New("it only watched")

// slotLine returns the name of the queue for any slot of a lock. No lease has this name.
func slotLine(lock string) string { return lock + "::slot" }
