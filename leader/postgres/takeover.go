package postgres

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// takeOver goes from wherever the session stands to leadership. It returns false
// without an error if somebody else has the election lock.
func (b *Backend) takeOver(ctx context.Context, t *seat) (bool, error) {
	if t.leads {
		return true, t.session.Ping()
	}
	if !t.main {
		t.began = time.Now()
		won, err := b.takeLock(ctx, t)
		if !won || err != nil {
			return false, err
		}
	}
	if err := b.incarnate(t); err != nil {
		return false, err
	}
	if err := b.outlive(ctx, t); err != nil {
		return false, err
	}
	if err := b.passBarrier(ctx, t); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, b.pending(ctx, t)
	}
	term, clean, err := b.fence(ctx, t)
	if err != nil {
		return false, err
	}
	t.leads = true
	b.gone, b.clean = t.gone, clean
	b.token = &token{election: b.config.Key.String(), barrier: b.election.Barrier(), incarnation: t.incarnation, ttl: b.ttl, term: term}
	return true, nil
}

// takeLock tries the election lock. If our own session from before still holds
// it, because the server has not noticed its end, that session is ended.
func (b *Backend) takeLock(ctx context.Context, t *seat) (bool, error) {
	lock := b.config.Key.Tag()
	won, err := t.session.Try(lock, session.Exclusive)
	for !won && err == nil && b.ghost != nil {
		holder, held, holderErr := t.session.Holder(lock)
		switch {
		case holderErr != nil:
			return false, holderErr
		case held && !b.ghost.is(holder):
			return false, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case held:
			if ours, err := t.exorcise(b.ghost); !ours {
				b.ghost = nil
				return false, err
			}
		}
		won, err = t.session.Wait(lock, session.Exclusive, left(ctx))
	}
	if won {
		t.main, b.ghost = true, nil
	}
	return won, err
}

// exorcise ends a session that was given up. ours is false if it is no longer that
// of this backend, because a pooler has given the server session to another client,
// or if the role may not end it.
func (t *seat) exorcise(g *ghost) (ours bool, err error) {
	ours, err = t.session.Terminate(g.pid, g.backendStart, g.applicationName)
	if sqlState(err) != "" {
		err = nil
	}
	return ours, err
}

// incarnate takes a lock that no term before had, as far as this process knows,
// and none that is held.
func (b *Backend) incarnate(t *seat) error {
	for t.incarnation == (namespace.Tag{}) {
		if b.lastR == 0 {
			b.lastR = rand.Uint32()
		}
		if b.lastR++; b.lastR == 0 {
			continue
		}
		tag := b.election.Incarnation(b.lastR)
		won, err := t.session.Try(tag, session.Exclusive)
		if err != nil {
			return err
		}
		if won {
			t.incarnation = tag
		}
	}
	return nil
}

// The pauses between two looks for the sessions of earlier terms.
const (
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
)

// outlive waits until no other session has an incarnation. The server gives back
// the locks of a session that ends in any order, so an earlier leader's
// incarnation can outlive its election lock, and its guards with it.
func (b *Backend) outlive(ctx context.Context, t *seat) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		holder, found, err := t.session.Incarnation(b.election)
		if err != nil || !found {
			return err
		}
		b.blocked(t, blocker{pid: holder.PID, applicationName: holder.ApplicationName})
		select {
		case <-ctx.Done():
			return b.pending(ctx, t)
		case <-time.After(pause):
		}
	}
}

// passBarrier waits for the guarded transactions of earlier terms.
func (b *Backend) passBarrier(ctx context.Context, t *seat) error {
	barrier := b.election.Barrier()
	passed, err := t.session.Try(barrier, session.Exclusive)
	for !passed && err == nil {
		holder, found, holderErr := t.session.Holder(barrier)
		if holderErr != nil {
			return holderErr
		}
		if found {
			b.blocked(t, blocker{guarded: true, pid: holder.PID, applicationName: holder.ApplicationName})
		}
		if ctx.Err() != nil {
			return b.pending(ctx, t)
		}
		passed, err = t.session.Wait(barrier, session.Exclusive, left(ctx))
	}
	if err != nil {
		return err
	}
	return t.session.Unlock(barrier, session.Exclusive)
}

// left is the time until the deadline of ctx, an hour at most.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Hour
	}
	return min(time.Until(deadline), time.Hour)
}

// A blocker is what a takeover waits for.
type blocker struct {
	guarded         bool
	pid             uint32
	applicationName string
}

// blockedFor is how long a takeover waits before that is worth a line in the log.
const blockedFor = 100 * time.Millisecond

// blocked notes what a takeover waits for, and logs it once.
func (b *Backend) blocked(t *seat, by blocker) {
	t.blocker = by
	if t.logged == by || time.Since(t.began) < blockedFor {
		return
	}
	t.logged = by
	about := []any{
		slog.String("election", b.config.Key.String()),
		slog.Uint64("pid", uint64(by.pid)), slog.String("application_name", by.applicationName),
	}
	if by.guarded {
		b.config.Logger.Warn("takeover waits for a guarded transaction", about...)
	} else {
		b.config.Logger.Warn("takeover waits for the session of an earlier leader", about...)
	}
}

func (b *Backend) pending(ctx context.Context, t *seat) error {
	return &PendingError{
		Election: b.config.Key.String(), Guarded: t.blocker.guarded, PID: t.blocker.pid, ApplicationName: t.blocker.applicationName,
		Waited: time.Since(t.began), Cause: context.Cause(ctx),
	}
}
