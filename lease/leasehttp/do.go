package leasehttp

import (
	"context"
	"errors"
)

// Do runs fn under a lease on name. It acquires the lease as AcquireWithRetry does with zero
// options, renews it while fn runs, and then releases it. The context of fn ends when the lease
// can no longer be trusted. FencingToken returns the lease's token from that context. If the
// lease was not acquired, Do returns the reason. Otherwise it returns fn's error, joined with the
// *LostError if the lease was lost while fn ran. It does not return an error if the release
// fails: the lease then expires.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	l, err := c.AcquireWithRetry(ctx, name, c.config.Owner, AcquireOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = c.ReleaseOnce(ctx, l) }()
	work, _ := c.StartHeartbeat(ctx, l, HeartbeatOptions{})
	err = fn(work)
	if lost, ok := errors.AsType[*LostError](context.Cause(work)); ok && !errors.Is(err, ErrLost) {
		return errors.Join(err, lost)
	}
	return err
}
