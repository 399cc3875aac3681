package system

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Sessions returns the footprint of a client whose connections carry a tag as their
// application_name.
func Sessions(ctx context.Context, dsn, tag string) (Footprint, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return Footprint{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read from
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", tag)
	if err != nil {
		return Footprint{}, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return Footprint{}, fmt.Errorf("count connections: %w", err)
	}
	return Footprint{Connections: len(pids), PIDs: pids}, nil
}

func (env Env) sessions(ctx context.Context) (Footprint, error) {
	return Sessions(ctx, env.Addresses[Postgres], env.Tag)
}

const (
	lockSQL   = "SELECT pg_advisory_lock($1, $2)"
	unlockSQL = "SELECT pg_advisory_unlock($1, $2)"
)

// openHandWritten opens the usual hand-written loop: a pool, two statements, no watch.
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
	take := func(ctx context.Context, _ int, key uint32) (release, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, lockSQL, int32(keySpace), int32(key)); err != nil {
			conn.Release()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer conn.Release()
			_, err := conn.Exec(ctx, unlockSQL, int32(keySpace), int32(key))
			return err
		}, nil
	}
	return &peer{take, env.sessions, func() error { pool.Close(); return nil }}, nil
}

// openDB opens a pool of database/sql whose connections carry the tag.
func openDB(env Env, conns int) (*sql.DB, error) {
	config, err := pgx.ParseConfig(env.Addresses[Postgres])
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = env.Tag
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// openDatabaseSQL opens the hand-written loop on one connection of database/sql, for which all
// workers queue up.
func openDatabaseSQL(_ context.Context, env Env) (Client, error) {
	db, err := openDB(env, 1)
	if err != nil {
		return nil, err
	}
	take := func(ctx context.Context, _ int, key uint32) (release, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, lockSQL, keySpace, key); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return func(ctx context.Context) error {
			defer conn.Close() //nolint:errcheck // returns it to the pool
			_, err := conn.ExecContext(ctx, unlockSQL, keySpace, key)
			return err
		}, nil
	}
	return &peer{take, env.sessions, db.Close}, nil
}

// pglockLease is longer than any contended lock is held here.
const pglockLease = time.Second

// openPglock opens a client that stores locks as rows. A client that finds a lock held waits for
// a whole lease, so a short lease helps it here. Heartbeats are off, which makes it faster: with
// them each grant would send one at once, and each release would cancel it.
func openPglock(ctx context.Context, env Env) (Client, error) {
	db, err := openDB(env, env.Conns)
	if err != nil {
		return nil, err
	}
	lease := pglockLease
	if env.Locks > 0 {
		lease = leaseTime
	}
	client, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(lease), pglock.WithHeartbeatFrequency(0))
	if err != nil {
		return nil, err
	}
	if err := client.TryCreateTable(); err != nil {
		return nil, err
	}
	if err := connectAll(ctx, db, env.Conns); err != nil {
		return nil, err
	}
	take := func(ctx context.Context, _ int, key uint32) (release, error) {
		lock, err := client.AcquireContext(ctx, strconv.FormatUint(uint64(key), 10))
		return func(ctx context.Context) error { return client.ReleaseContext(ctx, lock) }, err
	}
	return &peer{take, env.sessions, db.Close}, nil
}

// connectAll fills a pool in advance. An acquisition of pglock fails when its statement,
// including the time to connect, takes longer than the lease.
func connectAll(ctx context.Context, db *sql.DB, n int) error {
	conns := make([]*sql.Conn, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { conns[i], errs[i] = db.Conn(ctx) })
	}
	all.Wait()
	for _, c := range conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
