package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
)

// cancelTimeout bounds the request to the server to cancel the running statement after a loss.
const cancelTimeout = 5 * time.Second

// A hold is the one lock that a locker has at a time.
type hold struct {
	config Config
	// turn holds a token from acquire to release. A lost lock keeps the token until its migration has ended, so that no
	// other migration begins in this process before that.
	turn chan struct{}

	mu        sync.Mutex
	lock      *advisory.Lock // nil = none
	conn      *sql.Conn      // on which goose migrates, nil if unknown
	unwatched func()         // ends the watch over conn
}

func newHold(config Config) hold { return hold{config: config, turn: make(chan struct{}, 1)} }

// acquire waits for the lock. If server is not nil and the lock is lost, it closes server. On failure nothing has
// changed.
func (h *hold) acquire(ctx context.Context, conn *sql.Conn, server *pgconn.PgConn) error {
	timeout := time.NewTimer(h.config.Timeout)
	defer timeout.Stop()
	locker := h.config.Locker.With(advisory.Options{Wait: h.config.Timeout, Label: "goose migrations"})
	lock, err := locker.Acquire(ctx, h.config.Key)
	if err != nil {
		return fmt.Errorf("gooselock: %w", err)
	}
	select {
	case h.turn <- struct{}{}:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lock, h.conn, h.unwatched = lock, conn, watch(lock, server)
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		err = advisory.ErrTimeout
	}
	return errors.Join(fmt.Errorf("gooselock: a migration of this process that lost the lock has not ended: %w", err), lock.Release())
}

// release gives back the lock that acquire took for conn.
func (h *hold) release(conn *sql.Conn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lock == nil || h.conn != conn {
		return ErrNotLocked
	}
	h.unwatched()
	err := h.lock.Release()
	h.lock, h.conn, h.unwatched = nil, nil, nil
	<-h.turn
	if err != nil {
		return fmt.Errorf("gooselock: %w", err)
	}
	return nil
}

// watch closes the connection to the server when the lock is lost, until unwatched is called. unwatched waits for the
// end of the watch.
func watch(lock *advisory.Lock, server *pgconn.PgConn) (unwatched func()) {
	if server == nil {
		return func() {}
	}
	return background.Run(context.Background(), func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-lock.Lost():
			end(server)
		}
	})
}

// end closes the connection first, so that no further statement is sent on it. The server would notice that only after
// the running statement, so end also asks it to cancel that statement.
func end(server *pgconn.PgConn) {
	_ = server.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	_ = server.CancelRequest(ctx)
}
