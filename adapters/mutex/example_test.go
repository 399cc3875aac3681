package mutex_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

// The examples run on a server in memory; a program calls advisory.Open.
func exampleLocker() *advisory.Locker {
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

func ExampleMutex() {
	ctx := context.Background()
	locker := exampleLocker()
	defer locker.Close()
	m := mutex.New(locker, namespace.Must(2, "order").ID(42))
	if err := m.LockContext(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("nobody else works on", m.Name(), "until", m.Context().Err(), "is an error")
	fmt.Println(m.UnlockContext(ctx))
	// Output:
	// nobody else works on order/42 until <nil> is an error
	// true <nil>
}

func ExampleLocker_LockAndDo() {
	locker := exampleLocker()
	defer locker.Close()
	repos := mutex.NewLocker(locker, namespace.Must(3, "repo"))
	err := repos.LockAndDo(context.Background(), "acme/site", func(ctx context.Context) error {
		fmt.Println("nobody else merges into acme/site")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// nobody else merges into acme/site
	// <nil>
}
