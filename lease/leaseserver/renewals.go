package leaseserver

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// renewMany carries out renewals that are allowed and valid. If it returns an error, there are no
// results.
func (s *Server) renewMany(ctx context.Context, requests []lease.RenewRequest) ([]lease.RenewResult, error) {
	results, err := s.meter.renewAll(ctx, requests, s.survive)
	for i := range requests {
		if err != nil {
			s.metrics.request(opRenew, err)
			continue
		}
		s.metrics.request(opRenew, results[i].Err)
		if results[i].Err == nil {
			s.queue.renewed(results[i].Lease)
		}
	}
	return results, err
}

// renewAtOnce is how many renewals run at a time on a store that has no operation for many.
const renewAtOnce = 16

// errNotReached is the error of the renewals that a slow batch did not reach.
var errNotReached = errors.New("the store took too long for those before")

// renewAll renews many leases in one operation, if the store can do that. Else it renews them one
// by one, within the time of one.
func (m *meter) renewAll(ctx context.Context, all []lease.RenewRequest, survive func(context.Context, func() error) error) ([]lease.RenewResult, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if m.batch != nil {
		results, err := measured(ctx, m, opRenewAll, func(ctx context.Context) ([]lease.RenewResult, error) { return m.batch.RenewAll(ctx, all) })
		for i, r := range all {
			if err == nil {
				m.tell(r.Name, results[i].Err)
			} else {
				m.tell(r.Name, err)
			}
		}
		return results, err
	}
	ctx, cancel := m.bound(ctx)
	defer cancel()
	results := make([]lease.RenewResult, len(all))
	var renewing errgroup.Group
	renewing.SetLimit(renewAtOnce)
	for i, r := range all {
		renewing.Go(func() error {
			results[i].Err = survive(ctx, func() (err error) { results[i].Lease, err = m.renewOne(ctx, r); return err })
			return nil
		})
	}
	return results, renewing.Wait()
}

// renewOne does one of many renewals, within the time that is left for all.
func (m *meter) renewOne(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if ctx.Err() != nil {
		return lease.Lease{}, &lease.BusyError{Retry: pause.AtMost(wire.DefaultRetry), Cause: errNotReached}
	}
	start := time.Now()
	renewed, err := m.store.Renew(ctx, r)
	m.metrics.observe(opRenew, start, err)
	m.tell(r.Name, err)
	return renewed, err
}
