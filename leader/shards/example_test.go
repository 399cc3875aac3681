package shards_test

import (
	"context"
	"fmt"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

func Example() {
	store := shardstest.NewStore() // in memory, for tests
	node, err := shards.New(shards.Config{Name: "tenants", Backend: store.Backend(), Shards: []string{"acme"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
		fmt.Println("working for", s.Name, "in term", s.Term)
		stop() // as a signal would
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// working for acme in term 0.1
	// <nil>
}
