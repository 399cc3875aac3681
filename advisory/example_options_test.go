package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

// Readers share a key, and exclude writers.
func ExampleLocker_With() {
	prices := namespace.Must(5, "price-list")
	locker := exampleLocker()
	defer locker.Close()
	reading := locker.With(advisory.Options{Shared: true, Label: "export"})

	err := reading.Do(context.Background(), prices.ID(1), func(context.Context) error {
		other, err := reading.TryAcquire(context.Background(), prices.ID(1))
		if err != nil {
			return err
		}
		fmt.Println("two readers")
		_, err = locker.TryAcquire(context.Background(), prices.ID(1))
		fmt.Println("a writer:", errors.Is(err, advisory.ErrHeld))
		return other.Release()
	})
	fmt.Println(err)
	// Output:
	// two readers
	// a writer: true
	// <nil>
}

// The error names the holder of the lock.
func ExampleLocker_TryAcquire() {
	orders := namespace.Must(2, "order")
	server := advisorytest.NewServer()
	billing, err := server.Open(advisory.Config{ApplicationName: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close()
	shipping, err := server.Open(advisory.Config{ApplicationName: "shipping"})
	if err != nil {
		log.Fatal(err)
	}
	defer shipping.Close()
	lock, err := billing.TryAcquire(context.Background(), orders.ID(42))
	if err != nil {
		log.Fatal(err)
	}

	_, err = shipping.TryAcquire(context.Background(), orders.ID(42))
	if held, ok := errors.AsType[*advisory.HeldError](err); ok {
		fmt.Println(held.Key, "is held by", held.Holder.ApplicationName)
	}
	fmt.Println(lock.Release())
	// Output:
	// order/42 is held by billing
	// <nil>
}

// A process that holds many locks at a time needs only a few connections for them. The price is
// that the end of a connection loses all locks that it carries.
func ExampleConfig_locksPerConn() {
	tenants := namespace.Must(6, "tenant")
	locker, err := advisorytest.NewServer().Open(advisory.Config{MaxConns: 4, LocksPerConn: 500, MaxLocks: 1000})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	for id := range int64(600) {
		if _, err := locker.Acquire(context.Background(), tenants.ID(id)); err != nil {
			log.Fatal(err)
		}
	}
	stats := locker.Stats()
	fmt.Println(stats.Held, "locks on", stats.Sessions, "connections")
	// Output:
	// 600 locks on 2 connections
}

// This Tracer records requests that take long, and lost locks.
func ExampleTracer() {
	orders := namespace.Must(2, "order")
	server := advisorytest.NewServer()
	lost := make(chan advisory.LossData, 1)
	locker, err := server.Open(advisory.Config{Tracer: advisory.Tracer{
		Acquire: func(_ context.Context, data advisory.AcquireData) { fmt.Println("acquire", data.Key, data.Err) },
		Loss:    func(_ context.Context, data advisory.LossData) { lost <- data },
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	lock, err := locker.Acquire(context.Background(), orders.ID(42))
	if err != nil {
		log.Fatal(err)
	}
	server.KillSessions()
	data := <-lost
	fmt.Println("lost", data.Key, data.Reason)
	fmt.Println(errors.Is(lock.Release(), advisory.ErrLost))
	// Output:
	// acquire order/42 <nil>
	// lost order/42 connection
	// true
}
