package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/lease/leasehttp"
)

// The environment variables of a writer that is a separate process.
const (
	serverVariable   = "FENCING_SERVER"   // the lock server
	documentVariable = "FENCING_DOCUMENT" // URL of the resource, or
	databaseVariable = "FENCING_DATABASE" // URL of the resource's database
	guardedVariable  = "FENCING_GUARDED"  // whether to guard the write to the database
)

// The lock, and how long a writer keeps it without a heartbeat.
const (
	lockName = "document"
	ttl      = 3 * time.Second
)

// runWriter is the main function of the process that gets paused. It does everything right:
// it renews its lease in the background and checks the lease right before it writes.
func runWriter(ctx context.Context) error {
	target, end, err := ofEnvironment(ctx)
	if err != nil {
		return err
	}
	defer end()
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{os.Getenv(serverVariable)}})
	if err != nil {
		return err
	}
	defer client.Close()
	held, err := client.AcquireWithRetry(ctx, lockName, "writer-1", leasehttp.AcquireOptions{TTL: ttl})
	if err != nil {
		return err
	}
	defer func() { _ = client.ReleaseOnce(ctx, held) }()
	work, _ := client.StartHeartbeat(ctx, held, leasehttp.HeartbeatOptions{})

	if work.Err() != nil { // the check
		return context.Cause(work)
	}
	fmt.Printf("%d\n", held.FencingToken())
	// The process is stopped here. When it resumes, it reads on and knows nothing of the pause.
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	err = target.write(ctx, held.Claim(), "by writer-1, too late")
	switch {
	case errors.Is(err, errRefused):
		fmt.Println(err)
	case err != nil:
		return err
	default:
		fmt.Println(stored)
	}
	return nil
}

const stored = "stored"

// ofEnvironment returns the resource that the environment names.
func ofEnvironment(ctx context.Context) (target resource, end func(), err error) {
	if url := os.Getenv(documentVariable); url != "" {
		return webResource{url}, func() {}, nil
	}
	conn, err := pgx.Connect(ctx, os.Getenv(databaseVariable))
	if err != nil {
		return nil, nil, err
	}
	return tableResource{conn, os.Getenv(guardedVariable) != ""}, func() { _ = conn.Close(ctx) }, nil
}
