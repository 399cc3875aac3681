package system

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// handWritten is the usual hand-written loop: a pool, two statements, no watch.
type handWritten struct {
	env  Env
	pool *pgxpool.Pool
}

const (
	lockSQL   = "SELECT pg_advisory_lock($1, $2)"
	unlockSQL = "SELECT pg_advisory_unlock($1, $2)"
)

func openHandWritten(ctx context.Context, env Env) (Client, error) {
	config, err := pgxpool.ParseConfig(env.Addresses[Postgres])
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(max(env.Conns, env.Locks))
	config.ConnConfig.RuntimeParams["application_name"] = env.Tag
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &handWritten{env, pool}, nil
}

func (h *handWritten) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, lockSQL, int32(keySpace), int32(key)); err != nil {
		return err
	}
	held()
	_, err = conn.Exec(ctx, unlockSQL, int32(keySpace), int32(key))
	return err
}

// pooled is a lock and its connection.
type pooled struct {
	conn *pgxpool.Conn
	key  uint32
}

func (h *handWritten) Take(ctx context.Context, key uint32) (Held, error) {
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, lockSQL, int32(keySpace), int32(key)); err != nil {
		conn.Release()
		return nil, err
	}
	return &pooled{conn, key}, nil
}

func (p *pooled) Release() error {
	defer p.conn.Release()
	_, err := p.conn.Exec(context.Background(), unlockSQL, int32(keySpace), int32(p.key))
	return err
}

func (h *handWritten) Footprint(ctx context.Context) (Footprint, error) {
	return Sessions(ctx, h.env.Addresses[Postgres], h.env.Tag)
}

func (h *handWritten) Close() error {
	h.pool.Close()
	return nil
}
