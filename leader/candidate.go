package leader

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/leader/driver"
)

// After maxRushed attempts in quick succession, further attempts are minAttemptInterval apart, whatever a
// Backoff or a Backend says.
const (
	maxRushed          = 5
	minAttemptInterval = 50 * time.Millisecond
)

// follow waits until the next attempt is due or worthwhile.
func (d *drive) follow() input {
	if d.exhausted {
		return exhausted
	}
	// Work of an earlier term must not overlap with work of a new term in this process. Leading without
	// running work serves nobody, so others may lead meanwhile.
	quit := d.lifecycle.quit
	if d.works() {
		d.lifecycle.decide() // Start does not wait for earlier work
	}
	if !d.awaitWork(d.config.DrainTimeout, quit.Done(), nil) {
		if quit.Err() == nil {
			d.log.Warn("work of an earlier leadership is still running: not standing for election until it ends")
		}
		if !d.awaitWork(0, quit.Done(), nil) {
			return stop
		}
	}
	for {
		in, over := d.awaitNext(quit)
		switch {
		case quit.Err() != nil:
			return stop
		case over || d.preferred.Load() == nil:
			return in
		case !d.standBack(quit):
			return stop
		}
	}
}

// awaitNext waits until the next attempt is due or worthwhile. over is false if the candidate must first
// stand back for another.
func (d *drive) awaitNext(quit context.Context) (in input, over bool) {
	if d.preferred.Load() != nil {
		return attempt, false
	}
	if d.aside {
		d.aside = false
		if !d.contested(quit) {
			d.next = time.Now()
		}
	}
	ctx, cancel := d.untilNext(quit)
	defer cancel()
	if d.waitable && d.waiter != nil {
		err := d.waiter.Wait(ctx)
		switch {
		case err == nil: // the backend may already hold leadership
			return attempt, true
		case ctx.Err() != nil:
			return attempt, false
		}
		d.log.Debug("waiting failed, polling instead", slog.Any("error", err))
	}
	<-ctx.Done()
	return attempt, false
}

// acquire makes one attempt.
func (d *drive) acquire() input {
	in := acquired
	if d.active == nil { // otherwise reconnecting has already acquired it
		in = d.try(d.lifecycle.quit)
	}
	if d.lifecycle.quit.Err() != nil {
		return stop // whatever is held is abandoned
	}
	return in
}

// try makes one attempt; the end of quit cuts it short. acquired means that d.active is ready to begin.
func (d *drive) try(quit context.Context) input {
	if !d.pending { // otherwise the earlier attempt continues
		if d.attempts++; d.attempts == 1 {
			d.first = time.Now()
		}
	}
	d.waitable = false
	if !d.pace(quit) {
		return failed // the end of quit overrules this result
	}
	in := d.attempt(quit)
	if in == acquired {
		d.lifecycle.decide()
		in = d.settle(quit)
		d.unsettled = in != acquired
	}
	d.explain(in, quit)
	return in
}

// pace keeps the loop from spinning. The first attempts may follow each other at once, as in a hand-over. It
// returns false if quit ends.
func (d *drive) pace(quit context.Context) bool {
	since := time.Since(d.tried)
	if since > 2*minAttemptInterval {
		d.rushed = 0
	}
	if d.rushed++; d.rushed > maxRushed && pause.For(quit, minAttemptInterval-since) != nil {
		return false
	}
	d.tried = time.Now()
	return true
}

// attempt calls the backend, for try.
func (d *drive) attempt(quit context.Context) input {
	defer d.occupied()()
	ctx, cancel := context.WithTimeout(quit, d.config.RenewTimeout)
	defer cancel()
	from := boottime.Present()
	ok, err := d.backend.TryAcquire(ctx, d.config.Identity, d.config.LeaseDuration)
	d.err, d.pending = err, errors.Is(err, driver.ErrPending)
	switch {
	case d.pending:
		return pending
	case err != nil:
		d.err = &failure{err: err}
		d.stood = d.stood || d.followedLong()
		d.followed = time.Time{}
		if errors.Is(err, ErrPermanent) && !d.stood && !d.config.KeepTrying {
			return hopeless
		}
		return failed
	case !ok:
		if d.followed.IsZero() {
			d.followed = time.Now()
		}
		d.waitable = true
		d.look(quit)
		d.auditFollower()
		return refused
	}
	d.stood, d.unsettled = true, d.config.SettleDelay > 0
	if from.Since() > d.config.RenewInterval/2 {
		// The attempt took long, so its start proves too little: renew to count from a later time. The
		// renewal gets its own timeout, because the attempt may have used up all of its own.
		ctx, cancel := context.WithTimeout(quit, d.config.RenewTimeout)
		defer cancel()
		from = boottime.Present()
		if err := d.backend.Renew(ctx, d.config.Identity, d.config.LeaseDuration); err != nil {
			d.err = &failure{"renewing after a long attempt", err}
			return failed
		}
	}
	d.active = d.newTerm(d.lifecycle, from)
	return acquired
}

// followedLong reports whether others have kept this node from leading for a lease. A refusal for a shorter
// time can come from another candidate's attempt that will fail like this node's: for example, when all nodes
// start at once without their table.
func (d *drive) followedLong() bool {
	return !d.followed.IsZero() && time.Since(d.followed) >= d.config.LeaseDuration
}

// settle waits SettleDelay, so that a predecessor that did not end in order can learn of its end.
func (d *drive) settle(quit context.Context) input {
	if d.config.SettleDelay == 0 || d.active.clean || d.succeedsItself() {
		return acquired
	}
	timer := time.NewTimer(d.config.SettleDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return acquired
	case <-quit.Done():
		return stop
	case err := <-d.active.loss:
		d.err = &failure{"settling", err}
		return failed
	}
}

// succeedsItself reports whether the term before was this node's own. Its work has returned.
func (d *drive) succeedsItself() bool {
	return d.at.State == Reconnecting && !d.lastTerm.IsZero() && d.active.term.Follows(d.lastTerm)
}

// reconnect makes one attempt to recover leadership.
func (d *drive) reconnect() input {
	quit := d.lifecycle.leadership.quit
	in := d.recover(quit)
	switch {
	case d.lifecycle.quit.Err() != nil:
		return stop
	case quit.Err() != nil:
		return stepDown
	}
	return in
}

func (d *drive) recover(quit context.Context) input {
	if d.exhausted {
		return exhausted
	}
	ctx, cancel := context.WithDeadline(quit, d.grace)
	defer cancel()
	if !d.awaitWork(0, ctx.Done(), nil) || pause.For(ctx, time.Until(d.next)) != nil {
		return graceOver
	}
	switch in := d.try(ctx); {
	case in == acquired && d.succeedsItself():
		return reacquired
	case in == acquired:
		return superseded
	case in == refused:
		return notReacquired
	case ctx.Err() != nil:
		return graceOver
	default:
		return in
	}
}
