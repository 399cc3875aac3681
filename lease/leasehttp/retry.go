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

// AcquireOptions say how AcquireWithRetry goes about it. The zero value waits for 30 s.
type AcquireOptions struct {
	TTL         time.Duration     // 0 = the client's
	Metadata    map[string]string // see lease.AcquireRequest, as for the following three
	LockDelay   time.Duration
	MinHold     time.Duration
	MaxLifetime time.Duration

	// Slots asks for a slot of the lock, which up to so many may have at once; Shared for one
	// that any number may have; Exclusive for the whole lock, while nobody has a slot. See
	// AcquireShare. One of them at most; none of them = an ordinary lease, which is of
	// another lock.
	Slots     int
	Shared    bool
	Exclusive bool

	// IdempotencyKey makes this the same request as another with the key, as after a
	// restart of the program; see lease.AcquireRequest. "" = a new one.
	IdempotencyKey string

	// MaxWait bounds the whole. 0 = 30 s; negative = until ctx ends.
	MaxWait time.Duration

	// MaxAttempts bounds the requests. 0 = no bound but MaxWait.
	MaxAttempts int

	// NoLongPoll makes the client ask again and again, when the server recommends it,
	// instead of letting the server wait.
	NoLongPoll bool
}

// AcquireWithRetry acquires a lease, and waits for it within the bounds of options:
// in the server's line, or by asking again when the server recommends, jittered; also
// when the server cannot be reached. On failure it returns the last error, such as a
// *lease.HeldError, or why ctx ended; the outcome is unknown, too, if that of an earlier
// request is, and the last was not looked at, such as one that a policy refuses by now.
func (c *Client) AcquireWithRetry(ctx context.Context, name, owner string, options AcquireOptions) (*Lease, error) {
	r := lease.AcquireRequest{
		Name: name, Holder: owner, TTL: cmp.Or(options.TTL, c.config.TTL), Metadata: options.Metadata, IdempotencyKey: cmp.Or(options.IdempotencyKey, rand.Text()),
		LockDelay: options.LockDelay, MinHold: options.MinHold, MaxLifetime: options.MaxLifetime,
	}
	end := time.Now().Add(cmp.Or(options.MaxWait, DefaultAcquireWait))
	if options.MaxWait >= 0 { // sending again must not wait again
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, end.Add(c.config.Timeout), errors.New("the time to wait is over"))
		defer cancel()
	}
	warned := false
	var unknown error // what an earlier request came to, which can have been granted
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
			retry = max(retry-time.Since(asked), 0) // it has waited in the line, unless the server cuts that short
		}
		switch {
		case errors.Is(err, lease.ErrHeld):
			unknown = nil // the store knows the key, and has no lease of it
		case !isRefusal(err):
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

// acquireAny asks once for what options say.
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

// isRefusal reports whether err says that nothing was done.
func isRefusal(err error) bool {
	return errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrBusy) || errors.Is(err, lease.ErrNotReady) // and ErrDenied with that
}

// retryAfter is how long to wait after err before asking again, and whether asking
// can help.
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
	return wire.Jitter(min(wire.DefaultRetry<<min(attempt, 4), time.Second)), true // the server may be back then, and knows the key
}

// ReleaseOnce ends the heartbeat and the lease, also if ctx has ended, in the time of
// the client's Timeout at most. Further calls return the result of the first:
// deferring it is always right.
func (c *Client) ReleaseOnce(ctx context.Context, l *Lease) error {
	l.release.Do(func() {
		l.stopHeartbeat()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
		defer cancel()
		l.releaseErr = c.Release(ctx, l.Claim())
	})
	return l.releaseErr
}
