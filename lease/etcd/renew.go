package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease"
)

// renewing is how many renewals of a batch are under way at a time. etcd syncs together
// what it gets together.
const renewing = 64

var errNotReached = errors.New("the renewals before it took too long")

// RenewAll implements [lease.BatchRenewer]. Each renewal is what Renew does: a read, a
// message to etcd's leader and a transaction. So many are under way at a time that etcd syncs
// together what comes together. Config.Timeout bounds each; when it was over for one, or ctx
// ends, those that were not begun are not: *lease.BusyError.
func (s *Store) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	if s.closing.Err() != nil {
		return nil, errClosed
	}
	results := make([]lease.RenewResult, len(all))
	var silent atomic.Bool
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(renewing, len(all)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				r := &results[i]
				if silent.Load() || ctx.Err() != nil {
					r.Err = busy(errNotReached)
					continue
				}
				if r.Lease, r.Err = s.Renew(ctx, all[i]); errors.Is(r.Err, errNoAnswer) {
					silent.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return results, nil
}
