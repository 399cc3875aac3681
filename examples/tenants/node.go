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

// The environment variables that turn this program into a node.
const (
	nodeVariable   = "PGLATCH_DEMO_NODE" // its name
	dsnVariable    = "PGLATCH_DEMO_DSN"
	brokenVariable = "PGLATCH_DEMO_BROKEN" // set = the node does not guard its writes
)

// Timings of a node, shorter than in production so that the demo does not take long.
const (
	lease   = 4 * time.Second
	look    = lease / 8
	minStay = time.Second
	// bound is how long nobody may work for a tenant after a fault. It covers the end of the lease, the nodes' looks, and the
	// wait for a node that does not take its share. slack is for a slow machine.
	bound = lease + 3*look + lease/3 + slack
	slack = 3 * time.Second
)

// group is the namespace of the tenants' locks.
var group = namespace.Must(7, "tenant")

func openBackend(dsn string) (*postgres.Backend, error) {
	return postgres.New(postgres.Config{DSN: dsn, Namespace: group, CreateTable: true})
}

// serveNode is the main function of a node. Its log is JSON on stderr.
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

// Messages that a node logs.
const (
	lost    = "a shard was lost"
	refused = "a late write was refused"
)
