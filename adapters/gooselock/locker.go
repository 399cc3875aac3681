package gooselock

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"
)

// A Locker is a lock.Locker of goose. Several providers may use it concurrently, and exclude each
// other.
type Locker struct{ hold }

var _ lock.Locker = (*Locker)(nil)

// New returns a Locker for goose.WithLocker. If the Config is not valid, the error is a
// *advisory.ConfigError.
func New(config Config) (*Locker, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Locker{newHold(config)}, nil
}

// Lock waits for the lock, until ctx ends and for at most Config.Timeout. Errors are those of
// advisory.Locker.Acquire. After an error nothing is locked, and nothing waits. Lock does not use
// the pool.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error { return l.acquire(ctx, nil, nil) }

// Unlock releases the lock, even if its context has ended. The error matches advisory.ErrLost if
// the lock had been lost: another replica may then have migrated at the same time. Without a lock
// it is ErrNotLocked.
func (l *Locker) Unlock(context.Context, *sql.DB) error { return l.release(nil) }
