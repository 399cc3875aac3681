package leaseserver

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A meter wraps a store, and bounds and measures its operations. If a client hangs up, a change in
// progress still completes, because half a change helps nobody.
type meter struct {
	store   lease.Store
	hander  lease.HandOverer     // the store; nil = it cannot
	ahead   preparer             // the same
	keyed   lease.KeyedReleaser  // the same
	batch   lease.BatchRenewer   // the same
	health  lease.HealthReporter // the same
	timeout time.Duration
	metrics *metrics
	watches *watches // nil = none
	feed    *feed    // nil = none
}

func newMeter(store lease.Store, timeout time.Duration, m *metrics) *meter {
	hander, _ := store.(lease.HandOverer)
	ahead, _ := store.(preparer)
	keyed, _ := store.(lease.KeyedReleaser)
	batch, _ := store.(lease.BatchRenewer)
	health, _ := store.(lease.HealthReporter)
	return &meter{store: store, hander: hander, ahead: ahead, keyed: keyed, batch: batch, health: health, timeout: timeout, metrics: m}
}

// tell wakes the watchers of a lock that was changed, or may have been.
func (m *meter) tell(name string, err error) {
	if err == nil || wire.KindOf(err).Sentinel == nil {
		m.watches.change(name)
		m.feed.tell(name)
	}
}

func (m *meter) canHandOver() bool { return m.hander != nil }

func (m *meter) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
}

// measured runs one operation of the store.
func measured[T any](ctx context.Context, m *meter, o op, carryOut func(context.Context) (T, error)) (T, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	result, err := carryOut(ctx)
	m.metrics.observe(o, start, err)
	return result, err
}

func (m *meter) acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := measured(ctx, m, opAcquire, func(ctx context.Context) (lease.Lease, error) { return m.store.Acquire(ctx, r) })
	m.tell(r.Name, err)
	return l, err
}

func (m *meter) renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, err := measured(ctx, m, opRenew, func(ctx context.Context) (lease.Lease, error) { return m.store.Renew(ctx, r) })
	m.tell(r.Name, err)
	return l, err
}

func (m *meter) release(ctx context.Context, r lease.ReleaseRequest) error {
	_, err := measured(ctx, m, opRelease, func(ctx context.Context) (struct{}, error) {
		if m.keyed == nil || r.IdempotencyKey == "" {
			return struct{}{}, m.store.Release(ctx, r.Claim)
		}
		return struct{}{}, m.keyed.ReleaseKeyed(ctx, r)
	})
	m.tell(r.Name, err)
	return err
}

// handOver does a release and an acquire in one operation, on a store that can do that. prepared
// does it if it is not nil.
func (m *meter) handOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest, prepared handOverFunc) (l lease.Lease, released, acquired error) {
	l, acquired = measured(ctx, m, opHandOver, func(ctx context.Context) (l lease.Lease, acquired error) {
		if prepared != nil {
			l, released, acquired = prepared(ctx, r)
		} else {
			l, released, acquired = m.hander.HandOver(ctx, r, next)
		}
		return l, acquired
	})
	m.tell(r.Name, released)
	m.tell(r.Name, acquired)
	return l, released, acquired
}

func (m *meter) get(ctx context.Context, name string) (lease.Record, error) {
	return measured(ctx, m, opGet, func(ctx context.Context) (lease.Record, error) { return m.store.Get(ctx, name) })
}

// list returns one page, and one more record if there is one.
func (m *meter) list(ctx context.Context, r lease.ListRequest) ([]lease.Record, error) {
	return measured(ctx, m, opList, func(ctx context.Context) ([]lease.Record, error) {
		records := make([]lease.Record, 0, min(r.Limit, defaultPage+1))
		for record, err := range m.store.List(ctx, r) {
			if err != nil {
				return records, err
			}
			records = append(records, record)
		}
		return records, nil
	})
}

func (m *meter) sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	result, err := measured(ctx, m, opSweep, func(ctx context.Context) (lease.SweepResult, error) { return m.store.Sweep(ctx, r) })
	if result.Expired+result.Removed > 0 {
		m.watches.changeAll()
	}
	return result, err
}
