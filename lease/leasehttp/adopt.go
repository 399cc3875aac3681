package leasehttp

import (
	"context"
	"net/http"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// Adopt takes over a lease that this program had before a restart. It needs the lock's name, its
// owner, and the id of the lease. The id is the proof, so keep it where nobody else can read it.
// Adopt changes nothing and does not prolong the lease. StartHeartbeat renews it, with the
// client's TTL unless its options have another. The previous process must have ended, because
// both would have the same fencing token. Errors are those of lease.Adopt.
func (c *Client) Adopt(ctx context.Context, name, owner, id string) (*Lease, error) {
	claim := lease.Claim{Name: name, Holder: owner, ID: id, Token: 1} // the answer has the real token
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
