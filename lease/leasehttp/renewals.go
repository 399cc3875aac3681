package leasehttp

import (
	"context"
	"sync"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

var _ lease.BatchRenewer = (*Client)(nil)

// RenewAll implements lease.BatchRenewer. It sends as few requests as possible, and each renewal
// has its own result. If a renewal's outcome is unknown, its error says so. The second result is
// always nil.
func (c *Client) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	results := make([]lease.RenewResult, len(all))
	c.renewAll(ctx, all, func(i int, r renewal) { results[i] = lease.RenewResult{Lease: r.lease, Err: r.err} })
	return results, nil
}

// A renewal is the result of a RenewRequest. A renewed lease counts from the Moment.
type renewal struct {
	lease lease.Lease
	from  lease.Moment
	err   error
}

// renewAll calls done with the result of each request when its answer arrives, from several
// goroutines.
func (c *Client) renewAll(ctx context.Context, all []lease.RenewRequest, done func(i int, r renewal)) {
	valid := 0
	for _, r := range all {
		if r.Validate() == nil {
			valid++
		}
	}
	line := c.servers.all[c.servers.current.Load()].lines[lineOfClaims]
	together := line.gather(min(valid, wire.MaxBatch))
	places := make(chan struct{}, wire.MaxBatch)
	var calls sync.WaitGroup // the client links no errgroup
	for i := range all {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			var r renewal
			r.lease, r.from, r.err = c.renew(ctx, all[i], lineOfClaims, together)
			done(i, r)
		})
	}
	calls.Wait()
}
