package sqlite

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/gather"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A Store keeps leases in a file. It is safe for concurrent use. All changes are decided one
// after the other; requests that arrive together share a transaction. If a context ends, its
// operation stops waiting: if its request has not begun yet, the request is dropped; otherwise
// the outcome is unknown.
type Store struct {
	writer   *writer
	reader   *reader
	requests gather.Group[*request]
	closed   atomic.Bool  // or being closed
	close    func() error // once
}

var (
	_ lease.Store          = (*Store)(nil)
	_ lease.BatchRenewer   = (*Store)(nil)
	_ lease.HandOverer     = (*Store)(nil)
	_ lease.KeyedReleaser  = (*Store)(nil)
	_ lease.HealthReporter = (*Store)(nil)
)

// Acquire implements [lease.Store].
func (s *Store) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if err := r.Validate(); err != nil {
		return lease.Lease{}, err
	}
	r = detach(r)
	id := rules.NewID()
	var granted lease.Lease
	err := s.do(ctx, func(t *txn) (err error) {
		granted, err = t.acquire(r, id)
		return err
	})
	if err != nil { // if ctx ended, the writer may still write to granted
		return lease.Lease{}, err
	}
	return granted, nil
}

// detach returns a request that shares no memory with its caller's, to be kept.
func detach(r lease.AcquireRequest) lease.AcquireRequest {
	r.Name, r.Holder, r.IdempotencyKey = strings.Clone(r.Name), strings.Clone(r.Holder), strings.Clone(r.IdempotencyKey)
	r.Metadata = clone(r.Metadata)
	return r
}

func (t *txn) acquire(r lease.AcquireRequest, id string) (lease.Lease, error) {
	row, err := t.row(r.Name)
	if err != nil {
		return lease.Lease{}, err
	}
	floor := t.w.state.floor
	if row.Token == 0 { // the tokens that it may have had are forgotten
		floor = t.top
	}
	next, l, err := rules.Acquire(row, floor, t.now, r, id)
	if err != nil {
		return lease.Lease{}, err
	}
	t.replace(row, next)
	l.Metadata = clone(l.Metadata)
	return l, nil
}

// Renew implements [lease.Store].
func (s *Store) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	results, err := s.RenewAll(ctx, []lease.RenewRequest{r})
	if err != nil {
		return lease.Lease{}, err
	}
	return results[0].Lease, results[0].Err
}

// RenewAll implements [lease.BatchRenewer]. All are renewed in one transaction.
func (s *Store) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	results := make([]lease.RenewResult, len(all))
	err := s.do(ctx, func(t *txn) error {
		for i, r := range all {
			results[i] = t.renew(r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

func (t *txn) renew(r lease.RenewRequest) lease.RenewResult {
	if err := r.Validate(); err != nil {
		return lease.RenewResult{Err: err}
	}
	row, err := t.row(r.Name)
	if err != nil {
		return lease.RenewResult{Err: err}
	}
	next, l, err := rules.Renew(row, t.now, r)
	if err != nil {
		return lease.RenewResult{Err: err}
	}
	t.replace(row, next)
	l.Metadata = clone(l.Metadata)
	return lease.RenewResult{Lease: l}
}

// Release implements [lease.Store].
func (s *Store) Release(ctx context.Context, c lease.Claim) error {
	return s.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: c})
}

// ReleaseKeyed implements [lease.KeyedReleaser].
func (s *Store) ReleaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.do(ctx, func(t *txn) error { return t.release(r) })
}

func (t *txn) release(r lease.ReleaseRequest) error {
	row, err := t.row(r.Name)
	if err != nil {
		return err
	}
	next, err := rules.Release(row, t.now, r)
	if err != nil {
		return err
	}
	t.replace(row, next)
	return nil
}

// HandOver implements [lease.HandOverer].
func (s *Store) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	if err := next.Validate(); err != nil {
		return lease.Lease{}, s.ReleaseKeyed(ctx, r), err
	}
	if err := r.Validate(); err != nil {
		l, acquired = s.Acquire(ctx, next)
		return l, err, acquired
	}
	next = detach(next)
	id := rules.NewID()
	var results struct {
		lease              lease.Lease
		released, acquired error
	}
	err := s.do(ctx, func(t *txn) error {
		results.released = t.release(r)
		results.lease, results.acquired = t.acquire(next, id)
		return nil
	})
	if err != nil {
		return lease.Lease{}, err, err
	}
	return results.lease, results.released, results.acquired
}

// Stats are the counts of a Store since it was opened.
type Stats struct {
	Requests     uint64 // requests that were decided, or that failed with their transaction
	Transactions uint64 // transactions that decided them: one sync each, if they changed anything
	Busy         uint64 // requests that failed with *lease.BusyError because of another program, or because too many waited
	Failed       uint64 // requests whose transaction failed for another reason, such as a full disk
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	c := &s.writer.counters
	return Stats{
		Requests:     c.requests.Load(),
		Transactions: c.transactions.Load(),
		Busy:         c.busy.Load(),
		Failed:       c.failed.Load(),
	}
}

// Close finishes all accepted requests, then closes the file. Later requests get ErrClosed. All
// concurrent calls wait, and return the same result.
func (s *Store) Close() error { return s.close() }

// clone copies metadata; empty metadata is nil.
func clone(metadata map[string]string) map[string]string {
	if len(metadata) == 0 {
		return nil
	}
	return maps.Clone(metadata)
}
