package sqlite

import (
	"context"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// HandOver is Release and then Acquire in one transaction, which costs one sync: for
// a server that knows who waits for what is released. released is what Release would
// have returned, acquired what Acquire would have, which is tried in either case. If
// the transaction fails, both are its error.
func (s *Store) HandOver(ctx context.Context, c lease.Claim, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	if err := next.Validate(); err != nil {
		return lease.Lease{}, s.Release(ctx, c), err
	}
	if err := c.Validate(); err != nil {
		l, acquired = s.Acquire(ctx, next)
		return l, err, acquired
	}
	next = detach(next)
	id := ledger.NewID()
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
