package advisorytest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

// Two processes share a server. The second one finds the agent locked, and the first one
// learns that its session ended.
func Example() {
	agents := namespace.Must(1, "agent")
	server := advisorytest.NewServer()
	open := func(name string) *advisory.Locker {
		locker, err := server.Open(advisory.Config{ApplicationName: name})
		if err != nil {
			panic(err)
		}
		return locker
	}
	first, second := open("first"), open("second")
	defer first.Close()
	defer second.Close()

	ctx := context.Background()
	err := first.Do(ctx, agents.ID(42), func(ctx context.Context) error {
		ran, err := second.DoOrSkip(ctx, agents.ID(42), func(context.Context) error { return nil })
		fmt.Println("second ran:", ran, err)

		holders := server.Holders(agents.ID(42))
		fmt.Println("held by:", holders[0].ApplicationName)

		server.KillSessions() // PostgreSQL restarts
		<-ctx.Done()
		return nil
	})
	fmt.Println("lost:", errors.Is(err, advisory.ErrLost))
	fmt.Println("still locked:", len(server.Locked()))
	// Output:
	// second ran: false <nil>
	// held by: first
	// lost: true
	// still locked: 0
}
