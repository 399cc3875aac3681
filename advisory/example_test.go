package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

// The examples run on an in-memory server. A program calls advisory.Open.
func exampleLocker() *advisory.Locker {
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

func ExampleLocker_Do() {
	orders := namespace.Must(2, "order")
	locker := exampleLocker()
	defer locker.Close()

	err := locker.Do(context.Background(), orders.ID(42), func(ctx context.Context) error {
		fmt.Println("nobody else processes order 42 now")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// nobody else processes order 42 now
	// <nil>
}

func ExampleLocker_DoOrSkip() {
	orders := namespace.Must(2, "order")
	locker := exampleLocker()
	defer locker.Close()
	lock, err := locker.Acquire(context.Background(), orders.ID(42))
	if err != nil {
		log.Fatal(err)
	}

	ran, err := locker.DoOrSkip(context.Background(), orders.ID(42), func(context.Context) error { return nil })
	fmt.Println(ran, err)
	fmt.Println(lock.Release())
	// Output:
	// false <nil>
	// <nil>
}

func ExampleLocker_Acquire() {
	orders := namespace.Must(2, "order")
	locker := exampleLocker()
	defer locker.Close()

	lock, err := locker.With(advisory.Options{Wait: time.Second, Label: "invoice run"}).Acquire(context.Background(), orders.ID(42))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lock.Release() }() // a second Release is harmless

	select {
	case <-lock.Lost():
		fmt.Println("lost:", context.Cause(lock.Context()))
	default:
		fmt.Println("held:", lock.Key())
	}
	fmt.Println(lock.Release())
	// Output:
	// held: order/42
	// <nil>
}

func ExampleLocker_AcquireAll() {
	accounts := namespace.Must(3, "account")
	locker := exampleLocker()
	defer locker.Close()

	lock, err := locker.AcquireAll(context.Background(), accounts.ID(7), accounts.ID(3))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Keys())
	fmt.Println(lock.Release())
	// Output:
	// [account/3 account/7]
	// <nil>
}

func ExampleLocker_AcquireSlot() {
	vendors := namespace.Must(4, "vendor")
	locker := exampleLocker()
	defer locker.Close()
	short := locker.With(advisory.Options{Wait: time.Second})

	for range 3 { // two callers at a time may use the vendor's interface
		_, err := short.AcquireSlot(context.Background(), vendors.ID(1), 2)
		fmt.Println(errors.Is(err, advisory.ErrTimeout))
	}
	// Output:
	// false
	// false
	// true
}

// If a write must not happen without the lock, take the lock in the write's own
// transaction.
func ExampleLockTx() {
	orders := namespace.Must(2, "order")
	ship := func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := advisory.LockTx(ctx, tx, advisory.TxOptions{}, orders.ID(42)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE orders SET shipped = true WHERE id = 42")
			return err
		})
	}
	_ = ship
}

// The work has a context with its own time limit. A loss ends that context a moment later
// than the lock's. Before a write that must not be late, check the lock's context. If
// even the time between the check and the write is too long, use LockTx.
func ExampleLock_Context() {
	orders := namespace.Must(2, "order")
	locker := exampleLocker()
	defer locker.Close()
	lock, err := locker.Acquire(context.Background(), orders.ID(42))
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := context.WithTimeout(lock.Context(), time.Minute)
	defer cancel()

	fmt.Println("computing:", work.Err()) // here the process may be stopped for long
	if lock.Context().Err() != nil {
		log.Fatal(context.Cause(lock.Context()))
	}
	fmt.Println("writing")
	fmt.Println(lock.Release())
	// Output:
	// computing: <nil>
	// writing
	// <nil>
}

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
