package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// keep renews a term until ctx ends or it is lost, and then ends its context.
// While it runs the backend is its own.
func (e *Elector) keep(ctx context.Context, t *activeTerm) {
	defer close(t.kept)
	k := &keeper{e: e, t: t, results: make(chan error, 1)}
	err := k.run(ctx)
	if err != nil {
		t.end(t.lost(err))
		t.loss <- err
		e.notify()
	}
	_ = k.await() // the backend is called by one goroutine at a time
}

type keeper struct {
	e        *Elector
	t        *activeTerm
	results  chan error
	sent     boottime.Moment    // start of the renewal under way
	cancel   context.CancelFunc // of it; nil = there is none
	failures int                // in a row
	last     error              // of them
}

// run returns nil when ctx ends, else why leadership is lost.
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
				expiry.Reset(left) // a renewal came between
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

// judge says when to renew next, or that leadership is lost.
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

// report hands the outcome of a renewal to the lifecycle goroutine, if that has taken
// the one before.
func (k *keeper) report(err error) {
	select {
	case k.t.health <- err:
	default:
	}
}

// expired is the loss at the deadline, with the last error of a renewal.
func (k *keeper) expired() error {
	if k.last != nil {
		return fmt.Errorf("%w: %w", errExpired, k.last)
	}
	return errExpired
}

// why asks the backend for the reason of a loss that it announced.
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

// await ends the renewal under way, if there is one.
func (k *keeper) await() error {
	if k.cancel == nil {
		return nil
	}
	k.cancel()
	k.cancel = nil
	return <-k.results
}
