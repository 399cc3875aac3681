package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// How the driver makes a replica of this program.
const (
	replicaVariable = "PGLATCH_DEMO_REPLICA" // its name
	dsnVariable     = "PGLATCH_DEMO_DSN"
)

// What replicas do in less time than they would in production, so that nobody has
// to wait for it.
const (
	lockTimeout    = 6 * time.Second // longer than sessionTTL
	sessionTTL     = 5 * time.Second
	workerInterval = 250 * time.Millisecond
)

// serveReplica is the replica's whole life. Its log is JSON on stderr.
func serveReplica(name string) error {
	demokit.EndWithDriver()
	ctx := context.Background()
	app, err := agents.Open(ctx, agents.Config{
		DSN:            os.Getenv(dsnVariable),
		Replica:        name,
		LockTimeout:    lockTimeout,
		SessionTTL:     sessionTTL,
		WorkerInterval: workerInterval,
		Logger:         slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Demo:           true,
	})
	if err != nil {
		return err
	}
	defer app.Close()
	listener, err := demokit.Listen(ctx)
	if err != nil {
		return err
	}
	return app.Serve(ctx, listener)
}
