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
)

// cancelTimeout bounds the request that the server cancel what runs after a loss.
const cancelTimeout = 5 * time.Second

// A hold is the one lock that a locker has at a time.
type hold struct {
	config Config
	// turn has a token from acquire to release. A lock that was lost keeps it until its
	// migration has ended, so that none begins beside it in this process.
	turn chan struct{}

	mu        sync.Mutex
	lock      *advisory.Lock // nil = none
	conn      *sql.Conn      // what goose migrates on, nil if it is not known
	unwatched func()         // ends the watch over conn
}

func newHold(config Config) hold { return hold{config: config, turn: make(chan struct{}, 1)} }

// acquire waits for the lock, and ends server if the lock is lost, unless server is nil. On failure nothing has changed.
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

// watch ends the connection to the server when the lock is lost, until the function that it
// returns was called, which waits for the end of the watch.
func watch(lock *advisory.Lock, server *pgconn.PgConn) (unwatched func()) {
	if server == nil {
		return func() {}
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
		case <-lock.Lost():
			end(server)
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// end closes the connection first, so that no further statement goes out on it; the server
// would notice that only after the statement that runs, and so is asked to cancel it.
func end(server *pgconn.PgConn) {
	_ = server.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	_ = server.CancelRequest(ctx)
}
