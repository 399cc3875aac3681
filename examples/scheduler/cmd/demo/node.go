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

// The environment variable that turns this program into a node.
const (
	nodeVariable = "PGLATCH_DEMO_NODE" // its name
	dsnVariable  = "PGLATCH_DEMO_DSN"
)

// Timings of the nodes, shorter than in production so that the demo does not take long. The
// lease has its production length.
const (
	scheduleInterval  = 100 * time.Millisecond
	jobInterval       = 20 * time.Millisecond
	heartbeatInterval = 200 * time.Millisecond
)

// serveNode is the main function of a node. Its log is JSON on stderr.
func serveNode(name string) error {
	demokit.EndWithDriver()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	node, err := scheduler.Open(ctx, scheduler.Config{
		DSN:               os.Getenv(dsnVariable),
		Node:              name,
		Mount:             os.TempDir(), // shared by both nodes on this host
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

// Messages that a node logs.
const (
	skipping       = "not leader, skipping scheduler startup"
	acquired       = "acquired leadership, starting schedulers"
	built          = "scheduler_built"
	serviceStarted = "service started"
	serviceStopped = "service stopped"
	requeued       = "jobs_requeued"
)

// schedulers are the services that run only on the leader, in the order of their start.
var schedulers = []string{"refresh", "data_retention", "description_hook", "dependency_map"}
