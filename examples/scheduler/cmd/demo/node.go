package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/examples/scheduler"
)

// How the driver makes a node of this program.
const (
	nodeVariable = "PGLATCH_DEMO_NODE" // its name
	dsnVariable  = "PGLATCH_DEMO_DSN"
)

// What nodes do in less time than they would in production, so that nobody has to
// wait for it. The lease is as it would be.
const (
	scheduleInterval  = 100 * time.Millisecond
	jobInterval       = 20 * time.Millisecond
	heartbeatInterval = 200 * time.Millisecond
)

// serveNode is the node's whole life. Its log is JSON on stderr.
func serveNode(name string) error {
	demokit.EndWithDriver()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	node, err := scheduler.Open(ctx, scheduler.Config{
		DSN:               os.Getenv(dsnVariable),
		Node:              name,
		Mount:             os.TempDir(), // what both nodes share on this host
		MountLocal:        true,
		ScheduleInterval:  scheduleInterval,
		JobInterval:       jobInterval,
		HeartbeatInterval: heartbeatInterval,
		Logger:            slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer node.Close()
	listener, err := demokit.Listen(ctx)
	if err != nil {
		return err
	}
	return node.Serve(ctx, listener)
}

// What a node logs.
const (
	skipping       = "not leader, skipping scheduler startup"
	acquired       = "acquired leadership, starting schedulers"
	built          = "scheduler_built"
	serviceStarted = "service started"
	serviceStopped = "service stopped"
	requeued       = "jobs_requeued"
)

// schedulers are what only the leader runs, in the order of their start.
var schedulers = []string{"refresh", "data_retention", "description_hook", "dependency_map"}
