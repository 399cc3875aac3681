package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
)

// Observe is like Leader, but uses the session on which this node takes part in the election. It
// opens no connection.
func (b *Backend) Observe(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	err = b.onLockSession(ctx, func(t *lockSession) error {
		if err := t.session.Ping(); err != nil { // the ping ends the watch
			return err
		}
		h, held, err := t.session.Holder(b.config.Key.Tag())
		if err != nil || !held {
			return err
		}
		ok, holder.Identity, holder.Detail = true, h.ApplicationName, detail(h)
		if b.config.NoTerms {
			return nil
		}
		return b.readTerm(t.session.Query, h, &holder)
	})
	if err != nil {
		return driver.Holder{}, false, fmt.Errorf("leader: looking for the leader of %v: %w", b.config.Key, pgreach.Unreachable(err))
	}
	return holder, ok, nil
}

// Contested reports whether another session holds the election lock or waits for it.
func (b *Backend) Contested(ctx context.Context) (contested bool, err error) {
	err = b.onLockSession(ctx, func(t *lockSession) error {
		contested, err = pgelection.Contested(t.session, b.config.Key.Tag())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("leader: looking for candidates for %v: %w", b.config.Key, pgreach.Unreachable(err))
	}
	return contested, nil
}

// onLockSession calls do with this node's session. It fails if there is none.
func (b *Backend) onLockSession(ctx context.Context, do func(*lockSession) error) error {
	t := b.current
	if t == nil {
		return pgreach.Connection(errors.New("there is no session"))
	}
	t.settle(ctx)
	stop := t.within(ctx)
	err := do(t)
	stop()
	if lost := t.lost(); lost != nil {
		b.closeSession()
		return pgreach.Connection(lost)
	}
	t.rest()
	return err
}
