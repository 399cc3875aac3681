// Command demo shows, on a real PostgreSQL, what an agent's lock does when two
// replicas of examples/agents get hooks for the same agents:
//
//	go run ./examples/agents/cmd/demo         # and stay until Ctrl-C
//	go run ./examples/agents/cmd/demo -once   # exit 1 if a claim fails
//
// It starts PostgreSQL, or uses the server of PGLATCH_TEST_DATABASE_URL in a
// database of its own, and starts itself twice more as the replicas. All of them
// listen on loopback addresses, and are gone at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if name := os.Getenv(replicaVariable); name != "" {
		fail(serveReplica(name))
		return
	}
	once := flag.Bool("once", false, "end after the scenario instead of staying until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	fail(run(ctx, *once))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var errInterrupted = errors.New("interrupted")

// run plays the scenario between the start and the end of everything it needs.
func run(ctx context.Context, once bool) (err error) {
	out := newNarrator(os.Stdout, func() bool { return ctx.Err() != nil })
	out.title("pglatch: two replicas, one PostgreSQL, one lock for each agent")
	d := &demo{narrator: out}
	defer func() {
		closeErr := d.close()
		if closeErr == nil {
			out.say("replicas and database are gone")
		}
		err = errors.Join(err, closeErr)
	}()
	if err := d.open(ctx); err != nil {
		return ended(ctx, err)
	}
	for _, scene := range d.scenes() {
		if ctx.Err() != nil {
			return errInterrupted
		}
		out.scene(scene.title)
		if err := scene.play(ctx); err != nil {
			return ended(ctx, fmt.Errorf("%s: %w", scene.title, err))
		}
	}
	if err := out.verdict(); err != nil {
		return errors.Join(err, fmt.Errorf("the end of A's log:\n%s\nand of B's:\n%s", d.a.log.tail(), d.b.log.tail()))
	}
	if once {
		return nil
	}
	d.stay(ctx)
	return nil
}

// ended prefers the reason that the user knows: Ctrl-C makes everything fail.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
