package once_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
)

// Two nodes fire for one tick, one of them two seconds late.
func ExampleRunner_Do() {
	ctx := context.Background()
	store := leased.New(leasetest.NewStore()) // in programs a lock server, or once/postgres
	tick := time.Now().Truncate(time.Minute)  // of the schedule
	for _, node := range []string{"a", "b"} {
		runner, err := once.New(once.Config{Store: store, Node: node})
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := runner.Do(ctx, "close-the-day", tick, func(ctx context.Context) error {
			claim, _ := once.ClaimOf(ctx)
			fmt.Println("node", claim.Node, "runs it, with token", claim.Token)
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("node", node, "ran it:", result.Did, "- it is", result.State, "by", result.Node)
	}
	// Output:
	// node a runs it, with token 1
	// node a ran it: true - it is RAN by a
	// node b ran it: false - it is RAN by a
}

// At its start, a process runs the ticks that nobody ran during its absence.
func ExampleRunner_Missed() {
	ctx := context.Background()
	runner, err := once.New(once.Config{Store: leased.New(leasetest.NewStore()), Window: 6 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	hourly := func(t time.Time) time.Time { return t.Truncate(time.Hour).Add(time.Hour) } // or the Next of a cron schedule
	introduced := time.Now().Add(-3 * time.Hour)
	missed, err := runner.Missed(ctx, "close-the-hour", introduced, hourly)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tick := range missed {
		if _, err := runner.Do(ctx, "close-the-hour", tick, func(context.Context) error { return nil }); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(len(missed), "were missed")
	// Output: 3 were missed
}
