package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A program passes the backend of leader/postgres, say, in place of this one in memory.
var shared = leadertest.NewElection()

func ExampleElector_Run() {
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: shared.Backend()})
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Run(context.Background(), func(ctx context.Context) error {
		fmt.Println("only this process schedules, in term", leader.TermOfContext(ctx))
		return ctx.Err() // ctx ends when leadership does
	})
	fmt.Println("released:", err == nil)
	// Output:
	// only this process schedules, in term 1.1
	// released: true
}

// A Hook is the way in which a framework such as fx starts and stops components. The ctx of OnStart ends as
// soon as all components have started.
type Hook struct {
	OnStart, OnStop func(ctx context.Context) error
}

// In a framework that starts and stops components. OnStart fails if the node can never lead, for example
// because of a wrong password. OnStop waits for the work to end. Only then can others lead.
func ExampleElector_Start() {
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	working := make(chan struct{})
	schedule := func(ctx context.Context) error {
		fmt.Println("works in term", leader.TermOfContext(ctx))
		close(working)
		<-ctx.Done()
		fmt.Println("has ended")
		return nil
	}
	running, stop := context.WithCancel(context.Background()) // not OnStart's ctx
	hook := Hook{
		OnStart: func(ctx context.Context) error {
			if err := elector.Start(ctx); err != nil {
				return err
			}
			go func() { _ = elector.Run(running, schedule) }() // each time that the node leads
			return nil
		},
		OnStop: func(ctx context.Context) error {
			stop()
			return elector.Shutdown(ctx)
		},
	}

	starting, started := context.WithTimeout(context.Background(), 15*time.Second)
	err = hook.OnStart(starting)
	started() // the framework's ctx ends, the Elector goes on
	<-working
	fmt.Println("start:", err)
	fmt.Println("leads:", elector.IsLeader())
	fmt.Println("stop:", hook.OnStop(context.Background()))
	// Output:
	// works in term 1.1
	// start: <nil>
	// leads: true
	// has ended
	// stop: <nil>
}

// Work in small steps, and check IsLeader before each.
func ExampleElector_IsLeader() {
	elector, err := leader.New(leader.Config{Name: "jobs", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	if err := elector.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	for jobs := 0; jobs < 2; { // a program runs until it is stopped
		if !elector.IsLeader() {
			<-time.After(10 * time.Millisecond) // a second, in a program
			continue
		}
		jobs++
		fmt.Println("job", jobs)
	}
	fmt.Println(elector.Shutdown(context.Background()))
	// Output:
	// job 1
	// job 2
	// <nil>
}

// Wait for leadership, and work while it lasts. Run does the same. When leadership is given up, Run also
// keeps it until the work has returned.
func ExampleElector_WaitForLeadership() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	elector, err := leader.New(leader.Config{Name: "jobs", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	if err := elector.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	work := func() error {
		for {
			if err := elector.WaitForLeadership(ctx); err != nil {
				return err
			}
			for elector.IsLeader() {
				fmt.Println("work in term", elector.Term())
				fmt.Println(elector.Shutdown(context.Background())) // somebody stops it
			}
		}
	}
	fmt.Println(work())
	// Output:
	// work in term 1.1
	// <nil>
	// leader: jobs was stopped: not the leader
}

// These are the default times, and an identity that an operator recognizes.
func ExampleConfig() {
	elector, err := leader.New(leader.Config{
		Name:          "jobs",
		Backend:       leadertest.NewElection().Backend(),
		Identity:      "node-1", // such as os.Getenv("POD_NAME")
		LeaseDuration: 15 * time.Second,
		RenewInterval: 5 * time.Second,
		Retry:         backoff.Fixed{Interval: 2 * time.Second},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(elector.Config().Identity)
	// Output: node-1
}

func ExampleElector_Events() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	if err != nil {
		log.Fatal(err)
	}
	events := elector.Events(ctx) // from here on
	if err := elector.Start(ctx); err != nil {
		log.Fatal(err)
	}
	for event := range events {
		if event.Kind == leader.EventStateChange {
			fmt.Println(event.From, "to", event.To)
		}
		if event.Kind == leader.EventAcquired {
			break
		}
	}
	fmt.Println(elector.Shutdown(context.Background()))
	// Output:
	// stopped to follower
	// follower to acquiring
	// acquiring to leader
	// <nil>
}

func ExampleTerm() {
	seen := leader.Term{} // the greatest term that wrote, kept where the writes arrive
	write := func(t leader.Term) {
		if t.Compare(seen) < 0 {
			fmt.Println(t, "refused: a later leader has written")
			return
		}
		seen = t
		fmt.Println(t, "written, as", t.Uint64())
	}
	write(leader.Term{Era: 1, N: 41})
	write(leader.Term{Era: 1, N: 42})
	write(leader.Term{Era: 1, N: 41})
	// Output:
	// 1.41 written, as 281474976710697
	// 1.42 written, as 281474976710698
	// 1.41 refused: a later leader has written
}

// A node reports when it loses leadership. Leadership that the node gave up itself is not a loss.
func ExampleCallbacks_onLost() {
	election := leadertest.NewElection()
	backend := election.Backend()
	told := make(chan error, 1)
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend, Callbacks: leader.Callbacks{
		OnLost: func(term leader.Term, err error) {
			fmt.Println("term", term, "was lost")
			told <- err
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var once sync.Once
	_ = elector.Run(ctx, func(work context.Context) error {
		once.Do(func() { election.Steal("somebody-else", time.Minute) })
		<-work.Done() // ended before OnLost
		stop()
		return nil
	})
	fmt.Println(errors.Is(<-told, leader.ErrLost))
	// Output:
	// term 1.1 was lost
	// true
}
