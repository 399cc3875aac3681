// Package demokit is the common part of the examples' demos: a story with times and claims, on a PostgreSQL, with
// servers and processes of its own. Its functions fail the scene on an error, so that a demo reads like a script.
package demokit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pause"
)

// A Demo prints events with their times, counts claims, and ends everything that it started.
type Demo struct {
	DSN  string        // of the database of OpenDatabase
	Pool *pgxpool.Pool // the demo's own view of it, for its claims

	out         io.Writer
	began       time.Time
	colour      bool
	interrupted func() bool // the user pressed Ctrl-C: failures no longer matter
	claims      int
	failed      []string
	told        time.Time // when Status last printed
	processes   []*Process
	ends        []func() error
}

// A Story is the content of a demo.
type Story struct {
	Scenes []Scene
	Stay   func(ctx context.Context) // continues after the scenes until ctx ends; nil = nothing
}

// A Scene shows one promise.
type Scene struct {
	Title string
	Play  func(ctx context.Context)
}

// Main is the main function of a demo: it plays the story that tell prepares and, with -once, ends after it. The exit
// code is 1 if a claim does not hold. In a process that Demo.Start started, Main runs serve instead: see ServeNode.
func Main(title string, serve func(context.Context, *Node) error, tell func(context.Context, *Demo) Story) {
	ServeNode(serve)
	once := flag.Bool("once", false, "end after the scenario instead of staying until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	info, err := os.Stdout.Stat()
	d := &Demo{
		out: os.Stdout, began: time.Now(), interrupted: func() bool { return ctx.Err() != nil },
		colour: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "",
	}
	exit(d.run(ctx, title, tell, *once))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the scenes, and ends what they started.
func (d *Demo) run(ctx context.Context, title string, tell func(context.Context, *Demo) Story, once bool) (err error) {
	d.Printf("\n%s\n\n", d.Paint(Bold, title))
	defer func() {
		var ended error
		for _, end := range slices.Backward(d.ends) {
			ended = errors.Join(ended, end())
		}
		if err = errors.Join(err, ended); ended == nil {
			d.Say("everything that was started is gone")
		}
	}()
	var story Story
	err = try(func() {
		story = tell(ctx, d)
		for i, scene := range story.Scenes {
			d.Printf("\n%s\n", d.Paint(Bold, fmt.Sprintf("%d  %s", i+1, scene.Title)))
			scene.Play(ctx)
			Check(ctx.Err())
		}
	})
	switch {
	case ctx.Err() != nil: // Ctrl-C makes everything fail
		return errors.New("interrupted")
	case err == nil:
		err = d.verdict()
	}
	if err != nil {
		return errors.Join(err, errors.New(d.logs()))
	}
	if !once && story.Stay != nil {
		err = try(func() { story.Stay(ctx) })
		d.Printf("\n")
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A failure is the panic of Check.
type failure struct{ err error }

// Check ends the scene if err is not nil. It must run in the goroutine of the scene, as all functions of this package.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns value, and ends the scene if err is not nil.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// try runs fn and returns the error of a Check in it.
func try(fn func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	fn()
	return nil
}

// Defer has end called when the demo ends, the last one first.
func (d *Demo) Defer(end func() error) { d.ends = append(d.ends, end) }

// Patience limits waits for quick events, with room for a slow and busy machine.
const Patience = 30 * time.Second

// Await polls until is reports true.
func Await(ctx context.Context, what string, is func() bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, errors.New("waited too long for "+what))
	defer cancel()
	for !is() {
		Pause(ctx, 2*time.Millisecond)
		Check(context.Cause(ctx))
	}
}

// Pause waits for a time or until ctx ends.
func Pause(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }
