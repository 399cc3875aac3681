package leasehttp

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/shared"
)

// AcquireShare requests a slot of a lock, or the whole lock. The request waits at the server for at
// most wait; 0 = it does not wait. See shared.Locker for the guarantees. AcquireShare returns
// *lease.HeldError if it did not get the share. The share's claim is renewed and released like any
// other.
func (c *Client) AcquireShare(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error) {
	if r.IdempotencyKey == "" {
		r.IdempotencyKey = rand.Text()
	}
	if err := r.Validate(); err != nil {
		return shared.Share{}, err
	}
	answer, from, err := c.askAcquire(ctx, r.Name, wire.NewShareBody(r), wait)
	if err == nil {
		err = checkAnswer(r.Name, answer.ShareOf)
	}
	if err == nil && answer.Lock != shared.SlotName(r.Name, answer.Slot) || err == nil && r.Exclusive != (answer.Slot == 0) {
		err = errMixedUp
	}
	if err != nil {
		return shared.Share{}, err
	}
	return answer.Share(from), nil
}
