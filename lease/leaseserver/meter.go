package leaseserver

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A meter is a store whose operations are bounded and measured. A client that hangs
// up does not interrupt a change: half of one helps nobody.
type meter struct {
	store   lease.Store
	hander  lease.HandOverer     // the store; nil = it cannot
	health  lease.HealthReporter // the same
	timeout time.Duration
	metrics *metrics
}

func newMeter(store lease.Store, timeout time.Duration, m *metrics) *meter {
	hander, _ := store.(lease.HandOverer)
	health, _ := store.(lease.HealthReporter)
	return &meter{store: store, hander: hander, health: health, timeout: timeout, metrics: m}
}

func (m *meter) canHandOver() bool { return m.hander != nil }

func (m *meter) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
}

func (m *meter) acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	l, err := m.store.Acquire(ctx, r)
	m.metrics.observe(opAcquire, start, err)
	return l, err
}

func (m *meter) renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	l, err := m.store.Renew(ctx, r)
	m.metrics.observe(opRenew, start, err)
	return l, err
}

func (m *meter) release(ctx context.Context, c lease.Claim) error {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	err := m.store.Release(ctx, c)
	m.metrics.observe(opRelease, start, err)
	return err
}

// handOver is release and acquire in one, of a store that can do that.
func (m *meter) handOver(ctx context.Context, c lease.Claim, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	l, released, acquired = m.hander.HandOver(ctx, c, next)
	m.metrics.observe(opHandOver, start, acquired)
	return l, released, acquired
}

func (m *meter) get(ctx context.Context, name string) (lease.Record, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	r, err := m.store.Get(ctx, name)
	m.metrics.observe(opGet, start, err)
	return r, err
}

// list returns one page, and one record more if there is one.
func (m *meter) list(ctx context.Context, r lease.ListRequest) ([]lease.Record, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	records := make([]lease.Record, 0, r.Limit)
	var failed error
	for record, err := range m.store.List(ctx, r) {
		if err != nil {
			failed = err
			break
		}
		records = append(records, record)
	}
	m.metrics.observe(opList, start, failed)
	return records, failed
}

func (m *meter) sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	ctx, cancel := m.bound(ctx)
	defer cancel()
	start := time.Now()
	result, err := m.store.Sweep(ctx, r)
	m.metrics.observe(opSweep, start, err)
	return result, err
}
