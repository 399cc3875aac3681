package leasehttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/shared"
)

// Defaults of AcquireOptions.
const (
	DefaultAcquireWait = 30 * time.Second
	longPoll           = 20 * time.Second
)

// AcquireOptions configure AcquireWithRetry. The zero value waits for 30 s.
type AcquireOptions struct {
	TTL         time.Duration     // 0 = the client's
	Metadata    map[string]string // see lease.AcquireRequest, as for the following three
	LockDelay   time.Duration
	MinHold     time.Duration
	MaxLifetime time.Duration

	// Slots = n requests one of n slots of the lock, which up to n clients may hold at once. Shared
	// requests one of any number of slots. Exclusive requests the whole lock, which is granted
	// while nobody has a slot. See AcquireShare. Set at most one of the three. Without any, the
	// request is for an ordinary lease, which is a different lock.
	Slots     int
	Shared    bool
	Exclusive bool

	// A request with the same IdempotencyKey counts as the same request, for example after a
	// restart of the program; see lease.AcquireRequest. "" = a new one.
	IdempotencyKey string

	// MaxWait bounds the whole call. 0 = 30 s; negative = until ctx ends.
	MaxWait time.Duration

	// MaxAttempts bounds the number of requests. 0 = only MaxWait bounds them.
	MaxAttempts int

	// With NoLongPoll, the request does not wait at the server. Instead, the client retries
	// when the server recommends it.
	NoLongPoll bool
}

// AcquireWithRetry acquires a lease, and waits for it within the bounds of options. It waits in the
// server's queue, or retries at about the time that the server recommends. It also retries if the
// server cannot be reached. On failure it returns the last error, such as a *lease.HeldError, or
// ctx's cause. The outcome is also unknown in one more case: an earlier attempt got no answer, and
// the server refused the last attempt without checking the lease, for example because a policy has
// become narrower.
func (c *Client) AcquireWithRetry(ctx context.Context, name, owner string, options AcquireOptions) (*Lease, error) {
	r := lease.AcquireRequest{
		Name: name, Holder: owner, TTL: cmp.Or(options.TTL, c.config.TTL), Metadata: options.Metadata, IdempotencyKey: cmp.Or(options.IdempotencyKey, rand.Text()),
		LockDelay: options.LockDelay, MinHold: options.MinHold, MaxLifetime: options.MaxLifetime,
	}
	end := time.Now().Add(cmp.Or(options.MaxWait, DefaultAcquireWait))
	if options.MaxWait >= 0 { // a resent request must not wait again
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, end.Add(c.config.Timeout), errors.New("the time to wait is over"))
		defer cancel()
	}
	warned := false
	var unknown error // the error of an earlier request that may have been granted
	for attempt := 1; ; attempt++ {
		wait := longPoll
		if options.MaxWait >= 0 {
			wait = min(wait, max(time.Until(end), 0))
		}
		if options.NoLongPoll {
			wait = 0
		}
		asked := time.Now()
		l, err := c.acquireAny(ctx, r, options, wait)
		if err == nil {
			return l, nil
		}
		retry, again := retryAfter(err, attempt)
		if errors.Is(err, lease.ErrHeld) && wait > 0 {
			retry = max(retry-time.Since(asked), 0) // it has waited in the queue, unless the server cuts that short
		}
		switch {
		case errors.Is(err, lease.ErrHeld):
			unknown = nil // the store knows the key, and has no lease of it
		case !lease.NothingDone(err):
			unknown = err
		case unknown != nil:
			err = fmt.Errorf("%v; before that: %w", err, unknown) //nolint:errorlint // nothing was done is not what the caller may read
		}
		if !again || attempt == options.MaxAttempts || options.MaxWait >= 0 && time.Until(end) <= retry {
			return nil, fmt.Errorf("leasehttp: acquire %s, attempt %d: %w", name, attempt, err)
		}
		if errors.Is(err, ErrUnavailable) && !warned {
			warned = true
			c.config.Logger.WarnContext(ctx, "no lock server answers: trying again", slog.Any("error", err))
		}
		if cause := pause.For(ctx, retry); cause != nil {
			return nil, fmt.Errorf("leasehttp: acquire %s, attempt %d: %w", name, attempt, errors.Join(cause, err))
		}
	}
}

// acquireAny sends one request of the kind that options select.
func (c *Client) acquireAny(ctx context.Context, r lease.AcquireRequest, options AcquireOptions, wait time.Duration) (*Lease, error) {
	if options.Slots == 0 && !options.Shared && !options.Exclusive {
		l, from, err := c.acquire(ctx, r, wait)
		return newLease(r, l, from, c.config.Margin), err
	}
	if options.Shared && (options.Slots != 0 || options.Exclusive) {
		return nil, &lease.InvalidError{Field: "Shared", Value: "true", Remedy: "give it without Slots and Exclusive"}
	}
	s, err := c.AcquireShare(ctx, shared.Request{AcquireRequest: r, Slots: options.Slots, Exclusive: options.Exclusive}, wait)
	l := newLease(r, s.Lease, s.Asked, c.config.Margin)
	l.share = s
	return l, err
}

// retryAfter returns how long to wait after err before the next attempt, and whether an attempt can
// help.
func retryAfter(err error, attempt int) (time.Duration, bool) {
	if e, ok := errors.AsType[*lease.HeldError](err); ok {
		return max(e.Retry, time.Millisecond), true
	}
	if e, ok := errors.AsType[*lease.BusyError](err); ok {
		return max(e.Retry, time.Millisecond), true
	}
	if errors.Is(err, lease.ErrInvalid) || errors.Is(err, ErrDenied) {
		return 0, false
	}
	return pause.Backoff(attempt, wire.DefaultRetry, time.Second), true // the server may be back then, and knows the key
}

// ReleaseOnce ends the heartbeat and the lease, even if ctx has ended, within the client's Timeout.
// Further calls return the result of the first, so it is always safe to defer ReleaseOnce.
func (c *Client) ReleaseOnce(ctx context.Context, l *Lease) error {
	l.release.Do(func() {
		l.stopHeartbeat()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
		defer cancel()
		l.releaseErr = c.Release(ctx, l.Claim())
	})
	return l.releaseErr
}
