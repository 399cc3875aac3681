package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "leases.db")

	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		log.Fatal(err)
	}
	request := lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute}
	first, err := store.Acquire(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Holder, "has token", first.Token)

	// The lease outlives the process.
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	if store, err = sqlite.Open(ctx, path, sqlite.Config{}); err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	request.Holder = "worker-2"
	_, err = store.Acquire(ctx, request)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		fmt.Println(request.Holder, "is refused:", held.Holder, "has it")
	}
	if err := store.Release(ctx, first.Claim); err != nil {
		log.Fatal(err)
	}
	second, err := store.Acquire(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(second.Holder, "has token", second.Token)
	// Output:
	// worker-1 has token 1
	// worker-2 is refused: worker-1 has it
	// worker-2 has token 2
}
