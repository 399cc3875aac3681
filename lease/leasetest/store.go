package leasetest

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A Store keeps leases in memory. It uses the clock of package time.
type Store struct {
	mu    sync.Mutex
	rows  map[string]rules.Row
	floor uint64 // no less than the version of any name that was forgotten
}

var (
	_ lease.Store         = (*Store)(nil)
	_ lease.BatchRenewer  = (*Store)(nil)
	_ lease.HandOverer    = (*Store)(nil)
	_ lease.KeyedReleaser = (*Store)(nil)
)

// NewStore makes an empty Store.
func NewStore() *Store { return &Store{rows: make(map[string]rules.Row)} }

// begin starts an operation. The returned time is only the wall clock's, like that of a store that
// keeps times.
func (s *Store) begin(ctx context.Context, invalid error) (now time.Time, err error) {
	if invalid != nil {
		return now, invalid
	}
	return time.Now().UTC().Round(0), context.Cause(ctx)
}

// Acquire implements lease.Store.
func (s *Store) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquireLocked(ctx, r)
}

func (s *Store) acquireLocked(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	now, err := s.begin(ctx, r.Validate())
	if err != nil {
		return lease.Lease{}, err
	}
	r.Metadata = maps.Clone(r.Metadata)
	row, l, err := rules.Acquire(s.rows[r.Name], s.floor, now, r, rules.NewID())
	if err != nil {
		return lease.Lease{}, err
	}
	s.rows[r.Name] = row
	l.Metadata = maps.Clone(l.Metadata)
	return l, nil
}

// Renew implements lease.Store.
func (s *Store) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewLocked(ctx, r)
}

// RenewAll implements lease.BatchRenewer.
func (s *Store) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	results := make([]lease.RenewResult, len(all))
	for i, r := range all {
		results[i].Lease, results[i].Err = s.renewLocked(ctx, r)
	}
	return results, nil
}

func (s *Store) renewLocked(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	now, err := s.begin(ctx, r.Validate())
	if err != nil {
		return lease.Lease{}, err
	}
	row, l, err := rules.Renew(s.rows[r.Name], now, r)
	if err != nil {
		return lease.Lease{}, err
	}
	s.rows[r.Name] = row
	l.Metadata = maps.Clone(l.Metadata)
	return l, nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, c lease.Claim) error {
	return s.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: c})
}

// ReleaseKeyed implements lease.KeyedReleaser.
func (s *Store) ReleaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releaseLocked(ctx, r)
}

// HandOver implements lease.HandOverer.
func (s *Store) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	released = s.releaseLocked(ctx, r)
	l, acquired = s.acquireLocked(ctx, next)
	return l, released, acquired
}

func (s *Store) releaseLocked(ctx context.Context, r lease.ReleaseRequest) error {
	now, err := s.begin(ctx, r.Validate())
	if err != nil {
		return err
	}
	row, err := rules.Release(s.rows[r.Name], now, r)
	if err != nil {
		return err
	}
	s.rows[r.Name] = row
	return nil
}

// Get implements lease.Store.
func (s *Store) Get(ctx context.Context, name string) (lease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.begin(ctx, lease.ValidateName(name))
	if err != nil {
		return lease.Record{}, err
	}
	row, known := s.rows[name]
	if !known {
		return lease.Record{}, &lease.NotFoundError{Name: name}
	}
	return record(row, now), nil
}

func record(row rules.Row, now time.Time) lease.Record {
	r := row.Record(now)
	r.Metadata = maps.Clone(r.Metadata)
	return r
}

// List implements lease.Store.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		records, err := s.list(ctx, r)
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, record := range records {
			if !yield(record, nil) {
				return
			}
		}
	}
}

func (s *Store) list(ctx context.Context, r lease.ListRequest) ([]lease.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.begin(ctx, r.Validate())
	if err != nil {
		return nil, err
	}
	var records []lease.Record
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		if name <= r.After || !strings.HasPrefix(name, r.Prefix) {
			continue
		}
		records = append(records, record(s.rows[name], now))
		if len(records) == r.Limit {
			break
		}
	}
	return records, nil
}

// Sweep implements lease.Store.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var result lease.SweepResult
	now, err := s.begin(ctx, r.Validate())
	if err != nil {
		return result, err
	}
	left := cmp.Or(r.Limit, lease.DefaultSweepLimit)
	for name, row := range s.rows {
		if row.State(now) == lease.Held {
			result.Held++
		}
		sweeping := rules.Sweep(row, now, cmp.Or(r.Retention, lease.DefaultRetention))
		if left == 0 || !sweeping.Changed && !sweeping.Drop {
			continue
		}
		left--
		result.Expired += sweeping.Expired
		if sweeping.Drop {
			s.floor = max(s.floor, sweeping.Row.Version)
			delete(s.rows, name)
			result.Removed++
			continue
		}
		s.rows[name] = sweeping.Row
	}
	result.More = left == 0
	return result, nil
}
