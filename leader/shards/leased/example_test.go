package leased_test

import (
	"context"
	"fmt"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func Example() {
	store := leasetest.NewStore() // in memory, for tests; a *leasehttp.Client is one, too
	backend, err := leased.New(store, leased.Config{Name: "tenants"})
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: []string{"acme"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
		fmt.Println("working for", s.Name, "with the fencing token", s.Term.Uint64())
		stop() // as a signal would
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// working for acme with the fencing token 1
	// <nil>
}
