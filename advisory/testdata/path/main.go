// Command path takes and releases one lock, so many times as its argument says: a test compares what runs in two runs of it.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	locker, err := advisory.Open(ctx, advisory.Config{DSN: os.Getenv("DATABASE_URL")})
	if err != nil {
		return err
	}
	defer locker.Close()
	key := namespace.Must(1, "customer").ID(42)
	for range n {
		lock, err := locker.Acquire(ctx, key)
		if err != nil {
			return err
		}
		if err := lock.Release(); err != nil {
			return err
		}
	}
	return nil
}
