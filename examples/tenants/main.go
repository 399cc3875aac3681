// Command tenants shows, with real processes, that shards spread over nodes and never have two owners:
//
//	make demo-shards                                # and stay until Ctrl-C
//	go run ./examples/tenants -once                 # exit 1 if a claim fails
//	go run ./examples/tenants -once -break          # the control: writes without guards, and a claim fails
//
// 300 tenants are the shards of three nodes, each a process of its own, on one PostgreSQL. Each tenant's work adds a row
// to a table every two seconds, with the tenant's term, in a guarded transaction: it commits only while that
// term owns the tenant. When the context of the work ends, the work writes once more, like a program that checked
// its context a moment before. After a clean hand-over the tenant is still its own. Otherwise the guard refuses.
//
// Then a node is killed with kill -9, one joins, one loses a connection, and one drains. One is stopped past its
// lease and resumes, and one leaves cleanly. All the time the terminal shows how many tenants each node owns, as the
// nodes themselves report. At the end only the table decides: one writer in each term, no row of an old term after
// one of a new term, and for how long nobody worked for a tenant.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func main() {
	demokit.Main(fmt.Sprintf("pglatch: %d tenants, three nodes, one PostgreSQL: who owns what", tenants), "the writes are not guarded", serve, tell)
}

// Timings, shorter than in production so that the demo does not take long.
const (
	tenants = 300
	every   = 2 * time.Second // each tenant's work writes
	lease   = 4 * time.Second
	look    = lease / 8
	minStay = time.Second
	// bound is how long nobody may work for a tenant after a fault. It covers the end of the lease, the nodes' looks, and the
	// wait for a node that does not take its share. slack is for a slow machine.
	bound = lease + 3*look + lease/3 + slack
	slack = 3 * time.Second
)

// Messages that a node logs.
const (
	lost    = "a shard was lost"
	refused = "a late write was refused"
)

// group is the namespace of the tenants' locks.
var group = namespace.Must(7, "tenant")

func tenantNames() []string {
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%03d", i)
	}
	return names
}

func openBackend(dsn string) (*postgres.Backend, error) {
	return postgres.New(postgres.Config{DSN: dsn, Namespace: group, CreateTable: true})
}

// serve is the main function of a node.
func serve(ctx context.Context, n *demokit.Node) error {
	pool, err := pgxpool.New(ctx, n.DSN) // for writes: other connections carry the ownership
	if err != nil {
		return err
	}
	defer pool.Close()
	backend, err := openBackend(n.DSN)
	if err != nil {
		return err
	}
	node, err := shards.New(shards.Config{
		Name: group.Name(), Identity: n.Name, Backend: backend, Shards: tenantNames(),
		LeaseDuration: lease, LookInterval: look, MinStay: minStay, Logger: n.Log,
	})
	if err != nil {
		return err
	}
	n.Ready()
	// A tenant's work. When ctx ends it writes once more, like work that checked its context a moment
	// before. If that write is too late, the guard must refuse it.
	return node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
		for {
			over := ctx.Err() != nil
			err := write(context.WithoutCancel(ctx), pool, s, n)
			if errors.Is(err, leader.ErrNotLeader) {
				n.Log.Info(refused, slog.String("tenant", s.Name), slog.Any("error", err))
				err = nil
			}
			if over || err != nil {
				return err
			}
			demokit.Pause(ctx, every)
		}
	})
}

// write adds a row for the tenant.
func write(ctx context.Context, pool *pgxpool.Pool, s shards.Shard, n *demokit.Node) error {
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO acts (tenant, term, node) VALUES ($1, $2, $3)`, s.Name, int64(s.Term.Uint64()), n.Name)
		return err
	}
	if n.Broken {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return write(ctx, tx) })
	}
	return postgres.InTx(ctx, pool, write)
}
