package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// The environment variables of a writer.
const (
	serverVariable   = "FENCING_SERVER"   // the lock server
	documentVariable = "FENCING_DOCUMENT" // URL of the resource; without one it is a row in the database
	guardedVariable  = "FENCING_GUARDED"  // whether to guard the write to the database
)

// The lock, and how long a writer keeps it without a heartbeat.
const (
	lockName = "document"
	ttl      = 3 * time.Second
)

// Messages that a writer logs.
const (
	checked  = "checked"
	answered = "answered"
	stored   = "stored"
)

// runWriter is the main function of the process that gets paused. It does everything right:
// it renews its lease in the background and checks the lease right before it writes.
func runWriter(ctx context.Context, n *demokit.Node) error {
	n.Ready()
	var target resource = webResource{os.Getenv(documentVariable)}
	if os.Getenv(documentVariable) == "" {
		conn, err := pgx.Connect(ctx, n.DSN)
		if err != nil {
			return err
		}
		defer conn.Close(ctx) //nolint:errcheck // the process ends
		target = tableResource{conn, os.Getenv(guardedVariable) != ""}
	}
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{os.Getenv(serverVariable)}})
	if err != nil {
		return err
	}
	defer client.Close()
	held, err := client.AcquireWithRetry(ctx, lockName, n.Name, leasehttp.AcquireOptions{TTL: ttl})
	if err != nil {
		return err
	}
	defer func() { _ = client.ReleaseOnce(ctx, held) }()
	work, _ := client.StartHeartbeat(ctx, held, leasehttp.HeartbeatOptions{})

	if work.Err() != nil { // the check
		return context.Cause(work)
	}
	n.Log.Info(checked, slog.Uint64("token", held.FencingToken()))
	<-n.Next // The process is stopped here. When it resumes, it knows nothing of the pause.
	outcome := stored
	err = target.write(ctx, held.Claim(), "by writer-1, too late")
	switch {
	case errors.Is(err, errRefused):
		outcome = err.Error()
	case err != nil:
		return err
	}
	n.Log.Info(answered, slog.String("outcome", outcome))
	return nil
}
