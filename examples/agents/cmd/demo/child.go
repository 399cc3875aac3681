package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
)

// How the driver makes a replica of this program.
const (
	replicaVariable = "PGLATCH_DEMO_REPLICA" // its name
	dsnVariable     = "PGLATCH_DEMO_DSN"
)

// What replicas do in less time than they would in production, so that nobody has
// to wait for it.
const (
	lockTimeout    = 4 * time.Second // longer than sessionTTL
	sessionTTL     = 3 * time.Second
	workerInterval = 250 * time.Millisecond
)

// serveReplica is the replica's whole life. Its first line of output is its URL, and
// its log is JSON on stderr. It ends when the driver ends, however that comes about:
// then standard input does.
func serveReplica(name string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
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
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return app.Serve(ctx, listener)
}
