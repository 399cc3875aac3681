package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// How the driver makes a node of this program.
const (
	nodeVariable   = "PGLATCH_DEMO_NODE" // its name
	dsnVariable    = "PGLATCH_DEMO_DSN"
	brokenVariable = "PGLATCH_DEMO_BROKEN" // it does not guard its writes
)

// The times of a node are shorter than in production, so that nobody has to wait for them.
const (
	lease   = 4 * time.Second
	look    = lease / 8
	minStay = time.Second
	// bound is for how long nobody works for a tenant after a fault: its lease has to end, nodes have to look,
	// and one that does not take what is its is waited for. A slow machine may add its part.
	bound = lease + 3*look + lease/3 + slack
	slack = 3 * time.Second
)

// group is the namespace of the tenants' locks.
var group = namespace.Must(7, "tenant")

func openBackend(dsn string) (*postgres.Backend, error) {
	return postgres.New(postgres.Config{DSN: dsn, Namespace: group, CreateTable: true})
}

// serveNode is the node's whole life. Its log is JSON on stderr.
func serveNode(name string) error {
	demokit.EndWithDriver()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dsn := os.Getenv(dsnVariable)
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	backend, err := openBackend(dsn)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	node, err := shards.New(shards.Config{
		Name: group.Name(), Identity: name, Backend: backend, Shards: tenantNames(),
		LeaseDuration: lease, LookInterval: look, MinStay: minStay, Logger: log,
	})
	if err != nil {
		return err
	}
	demokit.Ready()
	o := &office{node: name, pool: pool, guarded: os.Getenv(brokenVariable) == "", log: log}
	return node.Run(ctx, o.work)
}

// What a node logs.
const (
	lost    = "a shard was lost"
	refused = "a late write was refused"
)
