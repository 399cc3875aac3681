package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// keep renews a term until ctx ends or the term is lost. On a loss it ends the term's context. While keep
// runs, it owns the backend. from is the start of the attempt or renewal that proved the leadership.
func (e *Elector) keep(ctx context.Context, t *activeTerm, from boottime.Moment) {
	defer close(t.kept)
	k := &keeper{e: e, t: t}
	k.Keeper = renew.Keeper[error]{
		Rules: e.config.renewals(), Left: t.until.Left, Gone: t.gone, Judge: k.judge,
		Renew: func(ctx context.Context) error {
			defer func(sent time.Time) { t.slowest.Store(max(t.slowest.Load(), int64(time.Since(sent)))) }(time.Now())
			return e.backend.Renew(ctx, e.config.Identity, e.config.LeaseDuration)
		},
	}
	err := k.Run(ctx, from)
	if errors.Is(err, renew.ErrEnded) {
		err = k.why()
	}
	if err != nil {
		t.end(t.lost(err))
		t.loss <- err
		e.notify()
	}
	k.Close() // only one goroutine at a time may call the backend
}

type keeper struct {
	renew.Keeper[error]
	e *Elector
	t *activeTerm
}

// judge records the result of a renewal.
func (k *keeper) judge(err error, sent boottime.Moment) (renew.Event, error) {
	e, err := renew.Judge(err, &k.t.until, sent.Add(k.t.trust), ErrLost)
	switch e {
	case renew.Kept:
		k.report(k.e.audit())
	case renew.Failed:
		failures := k.Failures() + 1
		k.e.log.Warn("health_check_failed", slog.Int("failures", failures), slog.Any("error", err))
		if limit := k.e.config.MaxRenewFailures; limit == 0 || failures < limit {
			k.report(renewError(err))
		}
	}
	return e, err
}

// report passes the outcome of a renewal to the lifecycle goroutine. It drops the outcome if the previous one
// has not been received yet.
func (k *keeper) report(err error) {
	select {
	case k.t.health <- err:
	default:
	}
}

// why asks the backend for the reason of a loss that the backend announced.
func (k *keeper) why() error {
	err, pending := k.Cancel()
	if !pending {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		err = k.Renew(ended)
	}
	switch {
	case errors.Is(err, ErrLost):
		return err
	case err == nil || errors.Is(err, context.Canceled):
		return ErrLost
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
