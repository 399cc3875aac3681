package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/background"
)

// A Right is held while a command runs: a lock or a lease.
type Right struct {
	// Begin returns a context that ends when the right is lost. The command is ended then.
	Begin func() context.Context

	// Asked is closed to send the command a TERM. nil = never.
	Asked <-chan struct{}

	// Release ends the right. It returns an error if the right was lost before.
	Release func() error
}

// RunUnder runs a command under a right, and releases the right when the command has ended. The end of
// ctx does not end the command: it receives the signal, and ends in its own way.
func RunUnder(ctx context.Context, right Right, command supervise.Command) error {
	signals, stop := Listen(ctx)
	defer stop()
	if right.Asked != nil {
		var forget func()
		signals, forget = termWhenAsked(signals, right.Asked)
		defer forget()
	}
	if ctx.Err() != nil { // the last moment before the child receives the signals
		return errors.Join(context.Cause(ctx), right.Release())
	}
	work := right.Begin()
	command.Signals = signals
	result, err := Run(work, command)
	lost := right.Release()
	_, notStarted := errors.AsType[*program.ExitError](err)
	switch {
	case notStarted:
		return err
	case err != nil: // the right was lost before
		return &program.ExitError{Code: program.ExitLost, Err: fmt.Errorf("the command was not started: %w", context.Cause(work))}
	case result.Stopped:
		return &program.ExitError{Code: program.ExitLost, Err: fmt.Errorf("the command was stopped: %w", context.Cause(work))}
	case lost != nil:
		return &program.ExitError{Code: program.ExitLost, Err: fmt.Errorf("the command had ended with code %d: %w", result.ExitCode, lost)}
	case result.ExitCode != 0:
		return &program.ExitError{Code: result.ExitCode}
	}
	return nil
}

// Run is supervise.Run. If the command cannot be started, the error is a *program.ExitError.
func Run(work context.Context, command supervise.Command) (supervise.Result, error) {
	result, err := supervise.Run(work, command)
	if start, ok := errors.AsType[*supervise.StartError](err); ok {
		err = &program.ExitError{Code: start.ExitCode, Err: err}
	}
	return result, err
}

// termWhenAsked adds to signals a TERM when asked is closed.
func termWhenAsked(signals <-chan os.Signal, asked <-chan struct{}) (all <-chan os.Signal, forget func()) {
	merged := make(chan os.Signal)
	return merged, background.Run(context.Background(), func(ctx context.Context) {
		for {
			var s os.Signal
			select {
			case s = <-signals:
			case <-asked:
				asked, s = nil, syscall.SIGTERM
			case <-ctx.Done():
				return
			}
			select {
			case merged <- s:
			case <-ctx.Done():
				return
			}
		}
	})
}
