package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
	"github.com/pglatch/pglatch/namespace"
)

// takeOver continues from the session's present stage to leadership. It returns false without an error if
// another session has the election lock.
func (b *Backend) takeOver(ctx context.Context, t *lockSession) (bool, error) {
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
	if err := b.takeIncarnation(t); err != nil {
		return false, err
	}
	if err := b.awaitSessions(ctx, t); err != nil {
		return false, err
	}
	if err := b.awaitGuards(ctx, t); err != nil {
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
	b.problem.Store(nil)
	b.own = ownTerm{term: term}
	b.gone, b.clean = t.gone, clean
	b.token = &pgguard.Token{
		Election: b.config.Key.String(), Term: term,
		Statements: electionGuards, Args: t.guardArgs(b.election.Guard(), b.ttl),
	}
	return true, nil
}

// takeLock tries the election lock. If our own earlier session still holds it, because the server has not
// noticed its end, takeLock ends that session.
func (b *Backend) takeLock(ctx context.Context, t *lockSession) (bool, error) {
	lock := b.config.Key.Tag()
	won, err := t.session.Try(lock, session.Exclusive)
	for !won && err == nil && b.stale != nil {
		holder, held, holderErr := t.session.Holder(lock)
		switch {
		case holderErr != nil:
			return false, holderErr
		case held && !b.stale.is(holder):
			return false, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case held:
			if ours, err := t.terminate(b.stale); !ours {
				b.stale = nil
				return false, err
			}
		}
		won, err = t.session.Wait(lock, session.Exclusive, left(ctx))
	}
	if won {
		t.main, b.stale = true, nil
	}
	return won, err
}

// terminate ends an abandoned session. ours is false if the role may not end it, or if the server session no
// longer belongs to this backend. A pooler may have given it to another client.
func (t *lockSession) terminate(g *serverSession) (ours bool, err error) {
	ours, err = pgelection.Terminate(t.session, g.pid, g.backendStart, g.applicationName)
	if sqlstate.Of(err) != "" {
		err = nil
	}
	return ours, err
}

// takeIncarnation takes a lock that no other session holds and that, as far as this process knows, no earlier
// term had.
func (b *Backend) takeIncarnation(t *lockSession) error {
	for t.incarnation == (namespace.Tag{}) {
		if b.lastR == 0 {
			b.lastR = rand.Uint32()
		}
		if b.lastR++; b.lastR == 0 {
			continue
		}
		tag := b.election.Incarnation(b.lastR)
		if tag == b.election.Guard() {
			continue
		}
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

// The limits of the pause between two looks for the sessions of earlier terms.
const (
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
)

// awaitSessions waits until no other session has an incarnation of this election. The server releases the
// locks of an ending session in any order. So an earlier leader's incarnation can outlive its election lock,
// and its guards with it.
func (b *Backend) awaitSessions(ctx context.Context, t *lockSession) error {
	for looks := 0; ; looks++ {
		holder, found, err := pgelection.Incarnation(t.session, b.config.Key)
		if err != nil || !found {
			return err
		}
		b.blocked(t, PendingError{PID: holder.PID, ApplicationName: holder.ApplicationName})
		if pause.For(ctx, pause.Backoff(looks, minPause, maxPause)) != nil {
			return b.pending(ctx, t)
		}
	}
}

// left returns the time until the deadline of ctx, an hour at most.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Hour
	}
	return min(time.Until(deadline), time.Hour)
}
