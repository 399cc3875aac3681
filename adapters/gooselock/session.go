package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3/lock"
)

// A SessionLocker is a lock.SessionLocker of goose. Several providers may use it concurrently, and
// exclude each other.
type SessionLocker struct{ hold }

var _ lock.SessionLocker = (*SessionLocker)(nil)

// NewSession returns a SessionLocker for goose.WithSessionLocker. If the Config is
// not valid, the error is a *advisory.ConfigError.
func NewSession(config Config) (*SessionLocker, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &SessionLocker{newHold(config)}, nil
}

// SessionLock waits for the lock, until ctx ends and for at most Config.Timeout. If the lock is lost before
// SessionUnlock, it closes the server connection under conn. The lock is not on conn but on a session of the Locker.
// Errors are ErrDriver and those of advisory.Locker.Acquire. After an error nothing is locked, and nothing waits.
func (l *SessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	server, err := serverConn(conn)
	if err != nil {
		return err
	}
	return l.acquire(ctx, conn, server)
}

// SessionUnlock releases the lock, even if its context has ended. The error matches advisory.ErrLost if
// the lock had been lost; conn was then closed. Without a lock, or for a conn other than SessionLock's,
// it is ErrNotLocked, and nothing changes.
func (l *SessionLocker) SessionUnlock(_ context.Context, conn *sql.Conn) error {
	return l.release(conn)
}

// serverConn returns pgx's connection under conn.
func serverConn(conn *sql.Conn) (server *pgconn.PgConn, err error) {
	err = conn.Raw(func(driver any) error {
		c, ok := driver.(interface{ Conn() *pgx.Conn })
		if !ok {
			return fmt.Errorf("%w: it is %T", ErrDriver, driver)
		}
		server = c.Conn().PgConn()
		return nil
	})
	if err != nil && !errors.Is(err, ErrDriver) {
		err = fmt.Errorf("gooselock: %w", err)
	}
	return server, err
}
