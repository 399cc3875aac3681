package pgsession

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/session"
)

// A Pool makes sessions on connections of its own: lock sessions have settings
// that would hurt other users of a connection, and other users' would hurt them.
type Pool struct {
	config   Config
	pool     *pgxpool.Pool
	counters counters
	released atomic.Int64   // monotonicNow of the last return of a connection
	verdict  atomic.Bool    // a pooler was seen and found to keep sessions apart
	watches  sync.WaitGroup // running watches and their reports of loss
}

var _ session.Source = (*Pool)(nil)

type counters struct {
	pings, watches, pidChecks, lost atomic.Int64
}

// Open connects once, so that a wrong password, a standby or a transaction
// pooler is found now. ctx bounds the call only.
func Open(ctx context.Context, config Config) (*Pool, error) {
	p := &Pool{config: config}
	pc, err := config.poolConfig()
	if err != nil {
		return nil, err
	}
	pc.AfterConnect = p.prepare
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, err
	}
	s, err := p.Acquire(ctx, time.Time{})
	if err != nil {
		p.Close()
		return nil, err
	}
	s.Release()
	return p, nil
}

// Acquire returns an idle session or connects a new one. It never waits for a
// session that is in use: the caller keeps to MaxSessions.
func (p *Pool) Acquire(ctx context.Context, deadline time.Time) (session.Session, error) {
	if !deadline.IsZero() && !p.quick(deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, p.connectError(ctx, err)
	}
	return newSession(p, conn), nil
}

// quick reports whether the pool needs no timer to be back before the deadline: a
// connection was in use so lately that the pool, which hands out the last one
// first, takes it as it is; and if none is idle, a new one is made or given up in
// time anyway.
func (p *Pool) quick(deadline time.Time) bool {
	if monotonicNow()-time.Duration(p.released.Load()) > askAfter/2 {
		return false
	}
	return time.Until(deadline) > p.config.dialBound()+p.config.statementBound() || p.pool.Stat().IdleConns() > 0
}

// connectError types the failure of a connection attempt.
func (p *Pool) connectError(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, pgconn.ErrStandbyConnection):
		return fmt.Errorf("%w: it has a lock space of its own and would grant a key that the primary has granted; connect to the primary", session.ErrStandby)
	case errors.Is(err, session.ErrPooler), errors.Is(err, session.ErrStandby):
		return err
	case errors.As(err, &pgErr) && pgErr.Code == codeOutOfMemory:
		return lockTableFull(pgErr)
	}
	return fmt.Errorf("%w: %w", session.ErrUnavailable, err)
}

// Stats returns the pool's counters.
func (p *Pool) Stats() session.Stats {
	return session.Stats{
		Open:      int(p.pool.Stat().TotalConns()),
		Pings:     p.counters.pings.Load(),
		Watches:   p.counters.watches.Load(),
		PIDChecks: p.counters.pidChecks.Load(),
		Lost:      p.counters.lost.Load(),
	}
}

// Close closes idle sessions and blocks until the others have been given back
// and all watches have ended.
func (p *Pool) Close() {
	p.pool.Close()
	p.watches.Wait()
}

// linkOf returns what prepare left on the connection.
func linkOf(conn *pgx.Conn) *link { return conn.PgConn().CustomData()[linkKey].(*link) }

// Keys of a connection's custom data.
const (
	linkKey = "pglatch"
	pidKey  = "pglatch pid" // from pg_backend_pid(), before anything else was asked
)
