package etcd

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/lease"
)

// renewing is how many renewals of a batch run at a time. Those that run at the same time share
// requests.
const renewing = 2 * mostTogether

var errNotReached = errors.New("the renewals before it took too long")

// RenewAll implements [lease.BatchRenewer]. Each renewal does the same as Renew. They share their
// requests: a hundred renewals of one TTL take one message to etcd's leader and one transaction.
// Config.Timeout bounds each. When one has timed out, or ctx ends, the remaining ones are not begun:
// *lease.BusyError. Renewals of one name run one after the other.
func (s *Store) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	if s.closing.Err() != nil {
		return nil, errClosed
	}
	results := make([]lease.RenewResult, len(all))
	var silent atomic.Bool
	var names errgroup.Group
	names.SetLimit(renewing)
	for _, requests := range byName(all) {
		names.Go(func() error {
			s.renewName(ctx, all, results, requests, &silent)
			return nil
		})
	}
	return results, names.Wait()
}

// byName groups requests by name, as indexes.
func byName(all []lease.RenewRequest) (names [][]int) {
	at := make(map[string]int, len(all))
	for i, r := range all {
		n, known := at[r.Name]
		if !known {
			n = len(names)
			at[r.Name], names = n, append(names, nil)
		}
		names[n] = append(names[n], i)
	}
	return names
}

// renewName renews one name by one request after the other, because concurrent ones would conflict.
// A request equal to the one before gets its result.
func (s *Store) renewName(ctx context.Context, all []lease.RenewRequest, results []lease.RenewResult, requests []int, silent *atomic.Bool) {
	for n, i := range requests {
		r := &results[i]
		if silent.Load() || ctx.Err() != nil {
			r.Err = busy(errNotReached)
			continue
		}
		if n > 0 && results[requests[n-1]].Err == nil && same(all[i], all[requests[n-1]]) {
			r.Lease = results[requests[n-1]].Lease
			r.Lease.Metadata = maps.Clone(r.Lease.Metadata)
			continue
		}
		if r.Lease, r.Err = s.Renew(ctx, all[i]); errors.Is(r.Err, errNoAnswer) {
			silent.Store(true)
		}
	}
}

func same(a, b lease.RenewRequest) bool {
	return a.Claim == b.Claim && a.TTL == b.TTL && (a.Metadata == nil) == (b.Metadata == nil) && maps.Equal(a.Metadata, b.Metadata)
}
