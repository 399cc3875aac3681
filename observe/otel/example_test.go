package otel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	locktrace "github.com/pglatch/pglatch/observe/otel"
)

func ExampleTracer() {
	provider, ended := tracing() // a program's is otel.GetTracerProvider()
	// A program calls advisory.Open; this server is in memory.
	locker, err := advisorytest.NewServer().Open(advisory.Config{Tracer: locktrace.Tracer(provider)})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	_ = locker.Do(context.Background(), orders.ID(42), func(context.Context) error { return nil })
	for _, span := range ended.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// lock hold
}

func ExampleWatch() {
	provider, ended := tracing()
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	stop := locktrace.Watch(provider, elector)
	_ = elector.Run(context.Background(), func(context.Context) error { return nil })
	stop()
	for _, span := range ended.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// leadership
}
