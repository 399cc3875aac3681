package prometheus

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
)

// A leases counts requests to lease stores.
type leases struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	lost     prometheus.Counter
	collectors
}

func newLeases() *leases {
	l := &leases{
		requests: counters("pglatch_lease_requests_total", "Requests to a store of leases, by how they ended.", "op", "result"),
		seconds: histograms("pglatch_lease_request_seconds", "Time of a request to a store of leases.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 15}, "op"),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "pglatch_lease_losses_total", Help: "Renewals that found the lease expired, or held by another."}),
	}
	l.collectors = collectors{l.requests, l.seconds, l.lost}
	return l
}

// Store returns a Store that counts the requests to s. The result implements only lease.Store.
// For other abilities of s, such as lease.BatchRenewer, use s itself.
func (m *Metrics) Store(s lease.Store) lease.Store { return &countedStore{counted{s, m.leases}, s} }

// Client returns a WaitingStore that counts the requests to c, a *leasehttp.Client, for
// leader/leased.
func (m *Metrics) Client(c leased.WaitingStore) leased.WaitingStore {
	return &countedClient{counted{c, m.leases}, c}
}

// A counted is a store whose requests are counted: the common part of a Store and a Client.
type counted struct {
	store leased.Store
	*leases
}

// A countedStore is a Store.
type countedStore struct {
	counted
	all lease.Store
}

// A countedClient is a counted store that can wait.
type countedClient struct {
	counted
	waits leased.WaitingStore
}

func (c *countedClient) AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	began := time.Now()
	l, err := c.waits.AcquireWait(ctx, r, wait)
	c.count("acquire_wait", began, err)
	return l, err
}

func (c *counted) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	began := time.Now()
	l, err := c.store.Acquire(ctx, r)
	c.count("acquire", began, err)
	return l, err
}

func (c *counted) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	began := time.Now()
	l, err := c.store.Renew(ctx, r)
	c.count("renew", began, err)
	if errors.Is(err, lease.ErrExpired) || errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrNotFound) {
		c.lost.Inc()
	}
	return l, err
}

func (c *counted) Release(ctx context.Context, claim lease.Claim) error {
	began := time.Now()
	err := c.store.Release(ctx, claim)
	c.count("release", began, err)
	return err
}

func (c *counted) Get(ctx context.Context, name string) (lease.Record, error) {
	began := time.Now()
	r, err := c.store.Get(ctx, name)
	c.count("get", began, err)
	return r, err
}

// List measures from its first record to the last one that the caller reads.
func (c *countedStore) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		began, failed := time.Now(), error(nil)
		defer func() { c.count("list", began, failed) }()
		for record, err := range c.all.List(ctx, r) {
			if failed = err; !yield(record, err) {
				return
			}
		}
	}
}

func (c *countedStore) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	began := time.Now()
	result, err := c.all.Sweep(ctx, r)
	c.count("sweep", began, err)
	return result, err
}

// count counts a request, with the result names of the lock server's own metrics.
func (l *leases) count(op string, began time.Time, err error) {
	l.seconds.WithLabelValues(op).Observe(time.Since(began).Seconds())
	l.requests.WithLabelValues(op, leaseResult(err)).Inc()
}

func leaseResult(err error) string {
	switch {
	case err == nil:
		return string(success)
	case errors.Is(err, lease.ErrHeld):
		return string(held)
	case errors.Is(err, lease.ErrBusy):
		return "busy"
	case errors.Is(err, context.Canceled):
		return "gone"
	case lease.IsOver(err), errors.Is(err, lease.ErrInvalid):
		return string(refused)
	}
	return string(unavailable)
}
