package sqlite

import (
	"context"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// HandOver implements [lease.HandOverer].
func (s *Store) HandOver(ctx context.Context, c lease.Claim, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	if err := next.Validate(); err != nil {
		return lease.Lease{}, s.Release(ctx, c), err
	}
	if err := c.Validate(); err != nil {
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
		results.released = t.release(c)
		results.lease, results.acquired = t.acquire(next, id)
		return nil
	})
	if err != nil {
		return lease.Lease{}, err, err
	}
	results.lease.Metadata = clone(results.lease.Metadata)
	return results.lease, results.released, results.acquired
}
