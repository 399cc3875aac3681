package pgsession

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/session"
)

// A Pool makes sessions on its own connections: the settings of lock sessions would hurt other
// users of a connection, and theirs would hurt lock sessions.
type Pool struct {
	maker
	pool *pgxpool.Pool
}

var _ session.Source = (*Pool)(nil)

// Open connects once, to detect a wrong password, a standby or a transaction pooler immediately.
// ctx bounds only the call.
func Open(ctx context.Context, config Config) (*Pool, error) {
	p := &Pool{maker: maker{config: config, times: config.times(), trust: config.times().Trust(), lineage: newLineage(config.LossDrain)}}
	pc, err := config.poolConfig(p.connConfig())
	if err != nil {
		return nil, err
	}
	pc.AfterConnect = p.prepare
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, err
	}
	s, err := p.Acquire(ctx)
	if err != nil {
		p.Close()
		return nil, err
	}
	s.Close(true)
	return p, nil
}

// Acquire returns an idle session or connects a new one. It never waits for a session in use: the
// caller keeps to MaxSessions. Only ctx bounds the whole call. Each of several hosts has its own
// timeout, and a name can stand for several hosts.
func (p *Pool) Acquire(ctx context.Context) (session.Session, error) {
	for {
		conn, err := p.pool.Acquire(ctx)
		for i := 1; i < attempts && hurried(err); i++ {
			conn, err = p.pool.Acquire(ctx)
		}
		if err != nil {
			return nil, p.connectError(ctx, err)
		}
		s := newSession(&p.maker, linkOf(conn.Conn()))
		s.pool, s.conn = p, conn
		if err = p.lineage.enter(ctx, s); err == nil {
			return s, nil
		}
		s.Close(false)
		if !errors.Is(err, session.ErrOtherServer) { // otherwise an idle connection was to an old primary
			return nil, err
		}
	}
}

// Stats returns the pool's counters.
func (p *Pool) Stats() session.Stats {
	stats := p.stats()
	stats.Open = int(p.pool.Stat().TotalConns())
	stats.LockTable = int(p.lockTable.Load())
	stats.Database, _ = p.database.Load().(string)
	return stats
}

// Close closes idle sessions and blocks until the others have been returned and all watches have
// ended.
func (p *Pool) Close() {
	p.pool.Close()
	p.watches.Wait()
}
