package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// The environment variables that turn this program into a replica.
const (
	replicaVariable = "PGLATCH_DEMO_REPLICA" // its name
	dsnVariable     = "PGLATCH_DEMO_DSN"
)

// Timings of the replicas, shorter than in production so that the demo does not take long.
const (
	lockTimeout    = 6 * time.Second // longer than sessionTTL
	sessionTTL     = 5 * time.Second
	workerInterval = 250 * time.Millisecond
)

// serveReplica is the main function of a replica. Its log is JSON on stderr.
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
