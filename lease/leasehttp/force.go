package leasehttp

import (
	"context"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A ForceReleaseRequest asks to end the lease of another holder.
type ForceReleaseRequest struct {
	Name   string // of the lock
	Reason string // for the server's log: 1 to 512 bytes

	// ID and Token name the lease to end. "" and 0 = the lease that exists when ForceRelease
	// begins, never a later one.
	ID    string
	Token uint64
}

// ForceRelease ends the lease of another holder. It needs a Token with the Admin right. It returns
// the ended lease, without its ID, and for how long its LockDelay prevents a new grant. A forced
// release does not prove that the holder has stopped: the holder continues until its next renewal
// fails.
//
// Errors:
//
//   - *lease.StaleError if the lock has a different lease than the named one, or (with Released
//     set) no lease
//   - *lease.ExpiredError and *lease.NotFoundError, as from Release
//   - *lease.HeldError if the LockDelay of a lease that was force-released before is not over,
//     unless the request names that lease's token
func (c *Client) ForceRelease(ctx context.Context, r ForceReleaseRequest) (ended lease.Lease, delay time.Duration, err error) {
	if err := lease.ValidateName(r.Name); err != nil {
		return ended, 0, err
	}
	if r.ID == "" && r.Token == 0 { // a resent request must not end a successor
		record, err := c.Get(ctx, r.Name)
		if err != nil {
			return ended, 0, err
		}
		if err := wire.ForceReleasable(record); err != nil {
			return ended, 0, err
		}
		r.Token = record.Token
	}
	body := wire.ForceReleaseBody{Reason: r.Reason, LeaseID: r.ID, FencingToken: r.Token}
	answer, _, err := ask[wire.ForceReleasedBody](ctx, c, &call{method: http.MethodPost, name: r.Name, verb: "force-release", body: body})
	if err == nil {
		err = checkAnswer(r.Name, answer.Lock)
	}
	if err != nil {
		return ended, 0, err
	}
	return answer.Lease(), wire.Milliseconds(answer.LockDelayMS), nil
}
