package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
	"github.com/pglatch/pglatch/namespace"
)

// awaitGuards waits for the guarded transactions of earlier terms. Those of this version
// share a lock that no other election has; those of earlier versions share one that is
// the same for elections of one class.
func (b *Backend) awaitGuards(ctx context.Context, t *lockSession) error {
	barriers := []namespace.Tag{b.election.Guard(), b.election.Barrier()}
	if alone, err := pgelection.Alone(t.session, barriers...); alone || err != nil {
		return err
	}
	for _, barrier := range barriers {
		if err := b.passBarrier(ctx, t, barrier); err != nil {
			return err
		}
	}
	return nil
}

// passBarrier waits until nobody shares a lock.
func (b *Backend) passBarrier(ctx context.Context, t *lockSession, barrier namespace.Tag) error {
	passed, err := t.session.Try(barrier, session.Exclusive)
	for !passed && err == nil {
		if err := b.endLateGuards(t, barrier); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return b.pending(ctx, t)
		}
		passed, err = t.session.Wait(barrier, session.Exclusive, min(left(ctx), b.untilEnd(t)))
	}
	if err != nil {
		return err
	}
	t.guards = guards{}
	return t.session.Unlock(barrier, session.Exclusive)
}

// guards are the guarded transactions that a takeover found in its way. It holds the
// election lock and an incarnation and nobody else has one, so they are all of
// earlier terms, and none can join them but those that the guard refuses at once.
type guards struct {
	barrier namespace.Tag
	since   time.Time // when they were found, or last asked to end
	found   map[string]bool
}

// endLateGuards looks for the transactions that are waited for, and ends them when their
// time is over.
func (b *Backend) endLateGuards(t *lockSession, barrier namespace.Tag) error {
	now, err := pgguard.Guards(t.session, barrier)
	if err != nil {
		return err
	}
	if t.guards.barrier != barrier {
		t.guards = guards{barrier: barrier, since: time.Now(), found: make(map[string]bool, len(now))}
		for _, g := range now {
			t.guards.found[g.Transaction] = true
		}
	}
	var waiting, ending []pgguard.Guarded
	for _, g := range now {
		if !t.guards.found[g.Transaction] {
			continue // it will be refused
		}
		waiting = append(waiting, g)
		if g.MayEnd {
			ending = append(ending, g)
		}
	}
	b.blockedByGuards(t, barrier, waiting)
	if !b.ends(t, barrier) || b.untilEnd(t) > 0 {
		return nil
	}
	t.guards.since = time.Now()
	return b.endGuards(t, barrier, ending)
}

// ends reports whether the takeover ends guarded transactions after a time. On the lock
// of earlier versions they can be another election's, if one has the same class.
func (b *Backend) ends(t *lockSession, barrier namespace.Tag) bool {
	return b.config.GuardTimeout >= 0 && (barrier == b.election.Guard() || !t.shared)
}

// untilEnd is the time until guarded transactions are ended.
func (b *Backend) untilEnd(t *lockSession) time.Duration {
	if !b.ends(t, t.guards.barrier) {
		return time.Hour
	}
	timeout := b.config.GuardTimeout
	if timeout == 0 {
		timeout = b.ttl
	}
	return timeout - time.Since(t.guards.since)
}

// endGuards ends sessions. What then still holds the barrier is waited for.
func (b *Backend) endGuards(t *lockSession, barrier namespace.Tag, ending []pgguard.Guarded) error {
	if len(ending) == 0 {
		return nil
	}
	ended, err := pgguard.EndGuards(t.session, barrier, ending)
	if sqlstate.Of(err) != "" {
		b.config.Logger.Warn("guarded transactions could not be ended", slog.Any("error", err))
		return nil
	}
	for _, g := range ending {
		b.config.Logger.Warn("guarded transaction of an earlier term is ended", append(b.about(blockerOf(g)), slog.Int("ended", ended))...)
	}
	return err
}

// blockedByGuards notes the first of the transactions that are waited for: of those
// that cannot be ended, if there are any.
func (b *Backend) blockedByGuards(t *lockSession, barrier namespace.Tag, waiting []pgguard.Guarded) {
	by := blocker{guarded: true}
	for i, g := range waiting {
		if i == 0 || !g.MayEnd {
			by = blockerOf(g)
			if b.ends(t, barrier) {
				by.needs = g.Needs()
			}
		}
		if !g.MayEnd {
			break
		}
	}
	b.blocked(t, by)
}
