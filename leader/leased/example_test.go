package leased_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A program passes a *leasehttp.Client, or the store of lease/postgres, in place of this
// store in memory.
func ExampleNew() {
	store := leasetest.NewStore()
	backend, err := leased.New(store, leased.Config{Name: "scheduler"})
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Identity: "node-1"})
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Run(context.Background(), func(ctx context.Context) error {
		holder, _, err := backend.Leader(ctx)
		fmt.Println(holder.Identity, "leads, with fencing token", leader.TermOfContext(ctx).Uint64())
		return err
	})
	fmt.Println("released:", err == nil)
	// Output:
	// node-1 leads, with fencing token 1
	// released: true
}
