package system

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5/stdlib"
)

// pglockClient stores locks as rows. A client that finds a lock held waits for a whole lease,
// so a short lease helps it here. Heartbeats are off, which makes it faster: with them each
// grant would send one at once, and each release would cancel it.
type pglockClient struct {
	env    Env
	db     *sql.DB
	client *pglock.Client
}

// pglockLease is longer than any contended lock is held here.
const pglockLease = time.Second

func openPglock(ctx context.Context, env Env) (Client, error) {
	config, err := tagged(env)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(env.Conns)
	db.SetMaxIdleConns(env.Conns)
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
	return &pglockClient{env, db, client}, nil
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

func (p *pglockClient) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	lock, err := p.client.AcquireContext(ctx, strconv.FormatUint(uint64(key), 10))
	if err != nil {
		return err
	}
	held()
	return p.client.ReleaseContext(context.WithoutCancel(ctx), lock)
}

// row is a lock of pglock.
type row struct {
	client *pglock.Client
	lock   *pglock.Lock
}

func (p *pglockClient) Take(ctx context.Context, key uint32) (Held, error) {
	lock, err := p.client.AcquireContext(ctx, strconv.FormatUint(uint64(key), 10))
	if err != nil {
		return nil, err
	}
	return &row{p.client, lock}, nil
}

func (r *row) Release() error { return r.client.Release(r.lock) }

func (p *pglockClient) Footprint(ctx context.Context) (Footprint, error) {
	return Sessions(ctx, p.env.Addresses[Postgres], p.env.Tag)
}

func (p *pglockClient) Close() error { return p.db.Close() }
