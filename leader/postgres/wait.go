package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// Wait waits for the election lock in the server's queue. It waits in short steps, so that no old snapshot
// holds back vacuum. It returns nil as soon as the lock is held, and at once before the first attempt. When
// ctx ends, it returns ctx's cause. If the server did not answer at that time, the error also matches
// driver.ErrConnection.
func (b *Backend) Wait(ctx context.Context) error {
	if b.dialer == nil {
		return nil
	}
	err := b.awaitLock(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (b *Backend) awaitLock(ctx context.Context) error {
	t, err := b.openSession(ctx)
	if err != nil {
		return err
	}
	if t.main {
		t.rest()
		return nil
	}
	return b.onLockSession(ctx, func(t *lockSession) error {
		b.warm(t)
		return b.queue(ctx, t)
	})
}

func (b *Backend) queue(ctx context.Context, t *lockSession) error {
	lock := b.config.Key.Tag()
	for ctx.Err() == nil {
		held, err := t.session.Wait(lock, session.Exclusive, left(ctx))
		switch {
		case err != nil:
			return err
		case held && ctx.Err() == nil:
			t.main, t.began, b.stale = true, time.Now(), nil
			return nil
		case held:
			if err := t.session.Unlock(lock, session.Exclusive); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}
