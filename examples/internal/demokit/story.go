// Package demokit is the common part of the examples' demos: a story with times and claims,
// on a PostgreSQL and with processes of its own.
package demokit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// A Story is the content of a demo.
type Story interface {
	Title() string
	// Open starts what the scenes need. Close ends it, and may also be called after Open
	// has failed.
	Open(ctx context.Context) error
	Close() error
	Scenes() []Scene
	// Stay continues after the scenes until ctx ends.
	Stay(ctx context.Context)
	// Logs returns the logs to read when a claim has failed.
	Logs() string
}

// A Scene shows one promise.
type Scene struct {
	Title string
	Play  func(ctx context.Context) error
}

// Main is the main function of a demo: it plays a story and, with -once, ends after
// it. The exit code is 1 if a claim does not hold.
func Main(tell func(*Narrator) Story) {
	once := flag.Bool("once", false, "end after the scenario instead of staying until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	n := newNarrator(os.Stdout, func() bool { return ctx.Err() != nil })
	Exit(run(ctx, n, tell(n), *once))
}

// Exit ends the process with code 1 if err is not nil.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var errInterrupted = errors.New("interrupted")

// run opens the story, plays its scenes, and closes it.
func run(ctx context.Context, n *Narrator, story Story, once bool) (err error) {
	n.title(story.Title())
	defer func() {
		closeErr := story.Close()
		if closeErr == nil {
			n.Say("everything that was started is gone")
		}
		err = errors.Join(err, closeErr)
	}()
	if err := story.Open(ctx); err != nil {
		return ended(ctx, err)
	}
	for _, scene := range story.Scenes() {
		if ctx.Err() != nil {
			return errInterrupted
		}
		n.scene(scene.Title)
		if err := scene.Play(ctx); err != nil {
			return ended(ctx, fmt.Errorf("%s: %w", scene.Title, err))
		}
	}
	if err := n.verdict(); err != nil {
		return errors.Join(err, errors.New(story.Logs()))
	}
	if !once {
		story.Stay(ctx)
	}
	return nil
}

// ended returns errInterrupted after Ctrl-C, because Ctrl-C makes everything fail.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
