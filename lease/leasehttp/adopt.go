package leasehttp

import (
	"context"
	"net/http"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// Adopt takes up a lease that this program had before it was started again: by the lock's
// name, its owner, and the id of the lease, which is the proof and should be kept where
// nobody else reads. Nothing changes, and the lease is not prolonged: StartHeartbeat renews
// it, by the client's TTL unless its options have another. The process before must have
// ended: both would have the same fencing token. Errors are those of lease.Adopt.
func (c *Client) Adopt(ctx context.Context, name, owner, id string) (*Lease, error) {
	claim := lease.Claim{Name: name, Holder: owner, ID: id, Token: 1} // which the answer tells
	if err := claim.Validate(); err != nil {
		return nil, err
	}
	answer, sent, err := ask[wire.LeaseBody](ctx, c, &call{method: http.MethodPost, name: name, verb: "adopt", body: wire.AdoptBody{OwnerID: owner, LeaseID: id}})
	if err != nil {
		return nil, err
	}
	claim.Token = answer.FencingToken
	if err := checkRenewal(lease.RenewRequest{Claim: claim}, &answer); err != nil {
		return nil, err
	}
	l := answer.Lease()
	return newLease(lease.AcquireRequest{Name: name, Holder: owner, TTL: c.config.TTL, Metadata: l.Metadata}, l, sent, c.config.Margin), nil
}
