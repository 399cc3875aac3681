package leasehttp

import (
	"context"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A ForceReleaseRequest asks for the end of the lease of another.
type ForceReleaseRequest struct {
	Name   string // of the lock
	Reason string // for the server's log: 1 to 512 bytes

	// ID and Token name the lease that is to end. "" and 0 = the one that there is when
	// ForceRelease begins; never one that comes after it.
	ID    string
	Token uint64
}

// ForceRelease ends the lease of another, which takes a Token with the right admin, and returns what
// was ended, without its ID, and for how long its LockDelay keeps the lock from everybody. That is no
// proof that its holder has stopped: it goes on until its next renewal fails. *lease.StaleError if
// the lock has another lease than that one, or, Released, none; *lease.ExpiredError and
// *lease.NotFoundError as of Release; *lease.HeldError if the LockDelay of one that was ended so is not
// over, unless its token is named.
func (c *Client) ForceRelease(ctx context.Context, r ForceReleaseRequest) (ended lease.Lease, delay time.Duration, err error) {
	if err := lease.ValidateName(r.Name); err != nil {
		return ended, 0, err
	}
	if r.ID == "" && r.Token == 0 { // a sending whose answer is lost is sent again, and must not end a successor
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
