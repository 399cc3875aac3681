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
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// A Demo prints events with their times, counts claims, and ends everything that it started. It is a testing.TB, so that
// the helpers of tests serve a demo too.
type Demo struct {
	testing.TB            // nil: it has the methods that no helper calls
	*dbtest.Database      // of OpenDatabase: the demo's own view, for its claims
	Broken           bool // with -break the demo is the control: a claim must fail

	ctx    context.Context // ends when the user presses Ctrl-C: then failures no longer matter
	out    io.Writer
	began  time.Time
	color  bool
	claims int
	wrong  []string  // claims that do not hold
	told   time.Time // when Status last printed
	ends   []func()
	err    error
	failed bool
}

// Helper does nothing. It is, like the next methods, a part of testing.TB that helpers call.
func (d *Demo) Helper() {}

// Context returns a context that Ctrl-C ends.
func (d *Demo) Context() context.Context { return d.ctx }

// Cleanup has end called when the demo ends, the last one first.
func (d *Demo) Cleanup(end func()) { d.ends = append(d.ends, end) }

// Failed reports whether a scene or a claim failed, other than by Ctrl-C.
func (d *Demo) Failed() bool { return d.failed && d.ctx.Err() == nil }

// FailNow ends the scene.
func (d *Demo) FailNow() { panic(failure{}) }

// Log prints on stderr.
func (d *Demo) Log(args ...any) { fmt.Fprintln(os.Stderr, args...) }

// Name implements testing.TB: a message about what went wrong begins with it.
func (d *Demo) Name() string { return "demo" }

// Errorf records what went wrong.
func (d *Demo) Errorf(format string, args ...any) {
	d.failed, d.err = true, errors.Join(d.err, fmt.Errorf(format, args...))
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
// code is 1 if a claim does not hold. control is what -break leaves out, so that a claim must fail; "" = there is no such
// flag. In a process that Demo.Start started, Main runs serve instead: see serveNode.
func Main(title, control string, serve func(context.Context, *Node) error, tell func(context.Context, *Demo) Story) {
	serveNode(serve)
	d := &Demo{out: os.Stdout, began: time.Now()}
	once := flag.Bool("once", false, "end after the scenario instead of staying until Ctrl-C")
	if control != "" {
		flag.BoolVar(&d.Broken, "break", false, "the control: "+control+", so that a claim must fail")
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	info, err := os.Stdout.Stat()
	d.ctx, d.color = ctx, err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
	if err := d.run(title, tell, *once); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the scenes, and ends what they started.
func (d *Demo) run(title string, tell func(context.Context, *Demo) Story, once bool) error {
	d.Printf("\n%s\n\n", d.Paint(Bold, title))
	var story Story
	d.try(func() {
		story = tell(d.ctx, d)
		for i, scene := range story.Scenes {
			d.Printf("\n%s\n", d.Paint(Bold, fmt.Sprintf("%d  %s", i+1, scene.Title)))
			scene.Play(d.ctx)
			Check(d.ctx.Err())
		}
		d.verdict()
	})
	if d.ctx.Err() != nil { // Ctrl-C makes everything fail
		d.err = errors.New("interrupted")
	} else if !d.failed && !once && story.Stay != nil {
		d.try(func() { story.Stay(d.ctx) })
		d.Printf("\n")
		if d.ctx.Err() != nil {
			d.err = nil
		}
	}
	played := d.err
	d.err = nil
	for _, end := range slices.Backward(d.ends) {
		d.try(end)
	}
	if d.err == nil {
		d.Say("everything that was started is gone")
	}
	return errors.Join(played, d.err)
}

// A failure is the panic of Check and FailNow.
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

// try runs fn and records the failure that ended it.
func (d *Demo) try(fn func()) {
	defer func() {
		r := recover()
		if f, ok := r.(failure); ok && f.err != nil {
			d.Errorf("%w", f.err)
		} else if r != nil && !ok {
			panic(r)
		}
	}()
	fn()
}

// Defer has end called when the demo ends, the last one first.
func (d *Demo) Defer(end func() error) { d.Cleanup(func() { Check(end()) }) }

// Await polls until is reports true.
func (d *Demo) Await(what string, is func() bool) {
	await.Until(d, await.Patience, func() bool {
		Check(context.Cause(d.ctx))
		return is()
	}, what)
}

// AwaitTrue polls a query of the demo's database until it returns true.
func (d *Demo) AwaitTrue(what, sql string, args ...any) {
	d.Await(what, func() bool { return dbtest.Ask[bool](d, sql, args...) })
}

// Pause waits for a time or until ctx ends.
func Pause(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }
