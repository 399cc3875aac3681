package services_test

import (
	"context"
	"fmt"
	"log"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/services"
)

type timer struct {
	name    string
	started func()
}

func (t timer) Start(context.Context) error { fmt.Println(t.name, "started"); t.started(); return nil }
func (t timer) Stop(context.Context) error  { fmt.Println(t.name, "stopped"); return nil }

func ExampleGroup() {
	ctx, stop := context.WithCancel(context.Background())
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	group, err := services.New(elector, services.Config{Services: []services.Spec{
		{Name: "refresh", New: func(context.Context) (services.Service, error) { return timer{"refresh", func() {}}, nil }},
		{Name: "retention", New: func(context.Context) (services.Service, error) { return timer{"retention", stop}, nil }},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(group.Run(ctx))
	// Output:
	// refresh started
	// retention started
	// retention stopped
	// refresh stopped
	// <nil>
}
