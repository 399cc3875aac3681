package slog_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/namespace"
	lockslog "github.com/pglatch/pglatch/observe/slog"
)

// exampleLogger leaves out what is different in each run.
func exampleLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "led", "clock", "began", "ended", "lasted", "waited":
			return slog.Attr{}
		}
		return a
	}}))
}

func ExampleTracer() {
	logger := exampleLogger() // a program has its own
	orders := namespace.Must(2, "order")
	// A program calls advisory.Open; this server is in memory. The zero Config logs waits from a second on.
	locker, err := advisorytest.NewServer().Open(advisory.Config{Tracer: lockslog.Tracer(logger, lockslog.Config{Slow: time.Nanosecond})})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	_ = locker.With(advisory.Options{Label: "invoice run"}).Do(context.Background(), orders.ID(42), func(context.Context) error { return nil })
	// Output:
	// level=INFO msg="lock acquired after a wait" key=order/42 label="invoice run"
}

func ExampleWatch() {
	logger := exampleLogger() // a program has its own
	elector, err := leader.New(leader.Config{Name: "scheduler", Identity: "node-1", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	defer lockslog.Watch(logger, elector)()
	_ = elector.Run(context.Background(), func(context.Context) error { return nil })
	// Output:
	// level=INFO msg="leadership acquired" election=scheduler identity=node-1 term=1.1 fencing_token=281474976710657
	// level=INFO msg="leadership released" election=scheduler identity=node-1 term=1.1 fencing_token=281474976710657
}

func ExampleWork() {
	logger := exampleLogger() // a program has its own
	elector, err := leader.New(leader.Config{Name: "scheduler", Identity: "node-1", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	_ = elector.Run(context.Background(), lockslog.Work(logger, elector, func(context.Context) error { return nil }))
	// Output:
	// level=INFO msg=work_began election=scheduler identity=node-1 term=1.1 fencing_token=281474976710657
	// level=INFO msg=work_ended election=scheduler identity=node-1 term=1.1 fencing_token=281474976710657
}
