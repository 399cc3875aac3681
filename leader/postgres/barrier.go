package postgres

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
)

// awaitGuards waits for the guarded transactions of earlier terms, which share the lock of the election's
// guards.
func (b *Backend) awaitGuards(ctx context.Context, t *lockSession) error {
	lock := b.election.Guard()
	passed, err := pgelection.Alone(t.session, lock)
	if passed || err != nil {
		return err
	}
	for !passed {
		if err := b.endLateGuards(t); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return b.pending(ctx, t)
		}
		if passed, err = t.session.Wait(lock, session.Exclusive, min(left(ctx), b.untilEnd(t))); err != nil {
			return err
		}
	}
	t.guards = guards{}
	return t.session.Unlock(lock, session.Exclusive)
}

// guards are the guarded transactions that block a takeover. The candidate holds the election lock and an
// incarnation, and no other session has one. So all of them are of earlier terms. Only transactions that the
// guard refuses at once can join them.
type guards struct {
	since time.Time       // when they were found, or when their end was last requested
	found map[string]bool // nil = the takeover has not looked yet
}

// endLateGuards looks for the transactions that block the takeover, and ends them when their time is over.
func (b *Backend) endLateGuards(t *lockSession) error {
	now, err := pgguard.Guards(t.session, b.election.Guard())
	if err != nil {
		return err
	}
	if t.guards.found == nil {
		t.guards = guards{since: time.Now(), found: make(map[string]bool, len(now))}
		for _, g := range now {
			t.guards.found[g.Transaction] = true
		}
	}
	// The guard will refuse the other transactions.
	waiting := slices.DeleteFunc(now, func(g pgguard.Guarded) bool { return !t.guards.found[g.Transaction] })
	b.blockedByGuards(t, waiting)
	if !b.endsGuards() || b.untilEnd(t) > 0 {
		return nil
	}
	t.guards.since = time.Now()
	return b.endGuards(t, waiting)
}

// endsGuards reports whether the takeover ends guarded transactions after a timeout.
func (b *Backend) endsGuards() bool { return b.config.GuardTimeout >= 0 }

// untilEnd returns the time until guarded transactions are ended.
func (b *Backend) untilEnd(t *lockSession) time.Duration {
	if !b.endsGuards() {
		return time.Hour
	}
	timeout := b.config.GuardTimeout
	if timeout == 0 {
		timeout = b.ttl
	}
	return timeout - time.Since(t.guards.since)
}

// endGuards ends the sessions of guarded transactions that the role may end. The takeover keeps waiting for
// whatever still holds the lock.
func (b *Backend) endGuards(t *lockSession, waiting []pgguard.Guarded) error {
	ended, err := pgguard.EndGuards(t.session, b.election.Guard(), waiting)
	if sqlstate.Of(err) != "" {
		b.config.Logger.Warn("guarded transactions could not be ended", slog.Any("error", err))
		return nil
	}
	for _, g := range waiting {
		if g.MayEnd && g.PID != 0 { // a prepared transaction has no session
			b.config.Logger.Warn("guarded transaction of an earlier term is ended", append(b.about(guardedBy(g)), slog.Int("ended", ended))...)
		}
	}
	return err
}

// blockedByGuards records one of the blocking transactions.
func (b *Backend) blockedByGuards(t *lockSession, waiting []pgguard.Guarded) {
	by := PendingError{Guarded: true}
	if len(waiting) > 0 {
		first := pgguard.Foremost(waiting)
		if by = guardedBy(first); b.endsGuards() {
			by.Needs = first.Needs()
		}
	}
	b.blocked(t, by)
}
