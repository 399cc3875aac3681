// Package supervise runs one child command for as long as a context lives, in a separate process
// group.
//
// Its guarantees, on Linux and other Unix systems:
//
//   - When Run returns, the child has been reaped, and the rest of its group has been killed.
//   - Signals that the program receives reach the whole group.
//   - On Linux, the kernel kills the child if this program dies before it can do so, as by kill -9
//     (PR_SET_PDEATHSIG). That covers only the child: not its own children, and not a set-user-ID
//     program, for which the kernel drops the setting.
//   - On Linux, a child whose input and output are the program's terminal is its foreground group.
//     It can read from the terminal, and Ctrl-C reaches it. A child in a pipeline gets the terminal
//     when it asks. When Ctrl-Z stops the child or the program, both stop. When they continue, the
//     context is checked first.
//   - A blocked Logger does not delay the end of the child.
//
// Its limits: a process that leaves the group (setsid, a daemon) is not followed, and while the
// program itself is stopped with SIGSTOP its child continues.
//
// It does only the job control that keeps a child from continuing while its context is not checked.
// It is not a shell: it has one job; it neither saves nor restores the modes of the terminal; a
// child that another signal than those of the terminal stopped, such as SIGSTOP, is left stopped; a
// terminal that is not the controlling one is a file; and where no shell would let the program
// continue, Ctrl-Z does nothing. On other systems than Linux there is no job control.
package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// DefaultKillAfter is how long a group may take to end after the request to do so.
const DefaultKillAfter = 5 * time.Second

// A Command sets what to run and how to end it. It can be run many times.
type Command struct {
	// Args is the program, looked up in PATH as a shell does, and its arguments.
	Args []string

	// Env is the environment, each "NAME=value" once. nil = that of this process.
	Env []string

	// CloseStdin gives the child an empty standard input.
	CloseStdin bool

	// Stdin, Stdout and Stderr are the child's streams. nil = those of this process.
	Stdin, Stdout, Stderr *os.File

	// Signal is sent to the group when the context ends. 0 = SIGTERM.
	Signal syscall.Signal

	// KillAfter is how long the group may then take, before SIGKILL. 0 = 5 s; negative = kill at
	// once.
	KillAfter time.Duration

	// Signals are forwarded to the group; Notify makes the channel. A second SIGINT kills the group
	// at once. nil = none.
	Signals <-chan os.Signal

	// Drain is how long the group may take after the first forwarded SIGINT, SIGTERM or SIGQUIT.
	// Then it is ended as if ctx had ended: Signal, and SIGKILL KillAfter later. 0 = no limit;
	// negative = end at once.
	Drain time.Duration

	// Logger receives when the group is ended, and why (Warn). nil = discard.
	Logger *slog.Logger
}

func (c Command) withDefaults() Command {
	c.Stdin, c.Stdout, c.Stderr = cmp.Or(c.Stdin, os.Stdin), cmp.Or(c.Stdout, os.Stdout), cmp.Or(c.Stderr, os.Stderr)
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Signal = cmp.Or(c.Signal, syscall.SIGTERM)
	c.KillAfter = cmp.Or(c.KillAfter, DefaultKillAfter)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// A Result is how the child ended.
type Result struct {
	// ExitCode is a shell's exit code: the child's own, or 128+n if signal n ended it.
	ExitCode int
	// Signal is the signal that ended the child, 0 if it exited.
	Signal syscall.Signal
	// Stopped: the context ended while the child ran, and the group was ended.
	Stopped bool
	// Interrupted is the first SIGINT, SIGTERM or SIGQUIT that was forwarded to the child, or the
	// one with which the terminal ended it; 0 if there was none.
	Interrupted syscall.Signal
}

// Exit codes of a wrapper whose child did not start, as in env(1) and timeout(1).
const (
	ExitFailed        = 125 // the wrapper's own failure
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// A StartError means that the child did not start.
type StartError struct {
	Program  string
	ExitCode int // ExitFailed, ExitNotExecutable or ExitNotFound
	Err      error
}

func (e *StartError) Error() string { return fmt.Sprintf("starting %q: %v", e.Program, e.Err) }

// Unwrap returns the system's error.
func (e *StartError) Unwrap() error { return e.Err }

func startError(program string, err error) *StartError {
	e := &StartError{Program: program, ExitCode: ExitNotExecutable, Err: err}
	if lookup, ok := errors.AsType[*exec.Error](err); ok {
		e.Err = lookup.Err
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		e.Err = path.Err
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		e.ExitCode = ExitNotFound
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, errors.ErrUnsupported):
		e.ExitCode = ExitFailed // fork(2)
	}
	return e
}
