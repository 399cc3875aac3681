package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// keep renews a term until ctx ends or the term is lost. On a loss it ends the term's context. While keep
// runs, it owns the backend.
func (e *Elector) keep(ctx context.Context, t *activeTerm) {
	defer close(t.kept)
	k := &keeper{e: e, t: t, results: make(chan error, 1)}
	err := k.run(ctx)
	if err != nil {
		t.end(t.lost(err))
		t.loss <- err
		e.notify()
	}
	_ = k.await() // only one goroutine at a time may call the backend
}

type keeper struct {
	e        *Elector
	t        *activeTerm
	results  chan error
	sent     boottime.Moment    // start of the present renewal
	cancel   context.CancelFunc // cancels that renewal; nil = none under way
	failures int                // consecutive
	last     error              // the last of these failures
}

// run returns nil when ctx ends, or the reason why leadership is lost.
func (k *keeper) run(ctx context.Context) error {
	e, t := k.e, k.t
	next := time.NewTimer(e.config.RenewInterval)
	defer next.Stop()
	expiry := time.NewTimer(t.left())
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.gone:
			return k.why()
		case <-expiry.C:
			if left := t.left(); left > 0 {
				expiry.Reset(left) // a renewal has moved the deadline
				continue
			}
			return k.expired()
		case <-next.C:
			if !t.alive() { // the process was stopped, or the machine suspended
				return k.expired()
			}
			k.renew()
		case err := <-k.results:
			k.cancel()
			k.cancel = nil
			pause, err := k.judge(err)
			if err != nil {
				return err
			}
			next.Reset(pause)
			expiry.Reset(max(t.left(), 0))
		}
	}
}

// renew starts a renewal.
func (k *keeper) renew() {
	var ctx context.Context
	ctx, k.cancel = context.WithTimeout(context.Background(), k.e.config.RenewTimeout)
	k.sent = boottime.Present()
	go func() {
		k.results <- k.e.backend.Renew(ctx, k.e.config.Identity, k.e.config.LeaseDuration)
	}()
}

// judge returns the delay before the next renewal, or the error that ends leadership.
func (k *keeper) judge(err error) (time.Duration, error) {
	e := k.e
	switch {
	case err == nil:
		if !k.t.renew(k.sent) {
			return 0, k.expired() // it came too late
		}
		k.failures, k.last = 0, nil
		k.report(k.e.audit())
		return max(e.config.RenewInterval-time.Since(k.sent.Mono), 0), nil
	case errors.Is(err, ErrLost):
		return 0, err
	}
	k.failures++
	e.log.Warn("health_check_failed", slog.Int("failures", k.failures), slog.Any("error", err))
	if limit := e.config.MaxRenewFailures; limit > 0 && k.failures >= limit {
		return 0, fmt.Errorf("%d renewals failed in a row: %w", k.failures, err)
	}
	k.last = err
	k.report(renewError(err))
	return e.config.RenewInterval / 5, nil
}

// report passes the outcome of a renewal to the lifecycle goroutine. It drops the outcome if the previous one
// has not been received yet.
func (k *keeper) report(err error) {
	select {
	case k.t.health <- err:
	default:
	}
}

// expired returns the error for a loss at the deadline, with the last renewal's error.
func (k *keeper) expired() error {
	if k.last != nil {
		return fmt.Errorf("%w: %w", errExpired, k.last)
	}
	return errExpired
}

// why asks the backend for the reason of a loss that the backend announced.
func (k *keeper) why() error {
	if k.cancel == nil {
		k.renew()
	}
	err := k.await()
	switch {
	case errors.Is(err, ErrLost):
		return err
	case err == nil || errors.Is(err, context.Canceled):
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// await cancels the present renewal, if any, and returns its result.
func (k *keeper) await() error {
	if k.cancel == nil {
		return nil
	}
	k.cancel()
	k.cancel = nil
	return <-k.results
}
