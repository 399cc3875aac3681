// Package proctest runs programs as processes in tests.
package proctest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/gobuild"
)

// A Process is a program that runs. It is killed at the end of the test, on Linux also if the test dies.
type Process struct {
	Stdout, Stderr capture.Text
	Done           chan struct{} // closed after the end of the process and of its output
	Limit          time.Duration // how long the methods wait before they fail the test

	tb    testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// Command returns a command that is not bound to the context of the test.
func Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	return exec.CommandContext(context.WithoutCancel(tb.Context()), name, args...)
}

// Self returns the command that runs the test's own executable, with further variables of its environment.
func Self(tb testing.TB, env ...string) *exec.Cmd {
	tb.Helper()
	return Under(tb, nil, env...)
}

// Under is Self behind a prefix, which must exec its arguments, as "ip netns exec x" does.
func Under(tb testing.TB, prefix []string, env ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	require.NoError(tb, err)
	words := append(slices.Clone(prefix), self)
	cmd := Command(tb, words[0], words[1:]...)
	cmd.Env = append(append(os.Environ(), "GORACE="+gobuild.RaceOptions+" "+os.Getenv("GORACE")), env...)
	return cmd
}

// Start starts a command. It captures the output that the command does not direct elsewhere. If the command has no
// standard input, it gets a pipe: see Tell.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{tb: tb, cmd: cmd, Done: make(chan struct{}), Limit: await.Patience}
	if cmd.Stdin == nil {
		var err error
		p.stdin, err = cmd.StdinPipe()
		require.NoError(tb, err)
	}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.Stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.Stderr
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = await.Soon // a child of the process may keep the output open
	require.NoError(tb, cmd.Start())
	go func() {
		defer close(p.Done)
		_ = cmd.Wait() // Wait tells the exit code
		p.Stdout.End()
		p.Stderr.End()
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.Done
		assert.NotContains(tb, p.Stderr.String(), "DATA RACE")
		if tb.Failed() {
			tb.Log(p.said())
		}
	})
	return p
}

// Tests runs the tests of this program that match a pattern.
func Tests(tb testing.TB, pattern string, env ...string) *Process {
	tb.Helper()
	cmd := Self(tb, env...)
	cmd.Args = append(cmd.Args, "-test.run="+pattern, "-test.v", "-test.timeout=5m")
	p := Start(tb, cmd)
	p.Limit = 5 * await.Patience
	return p
}

// said describes the process, with the end of its output.
func (p *Process) said() string {
	tail := func(text string) string { return text[max(0, len(text)-4000):] }
	return fmt.Sprintf("process %d %q\nstdout: %s\nstderr: %s", p.PID(), p.cmd.Args, tail(p.Stdout.String()), tail(p.Stderr.String()))
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.tb.Helper()
	require.NoError(p.tb, p.cmd.Process.Signal(s), p.said())
}

// Kill ends the process like kill -9, unless it has ended.
func (p *Process) Kill() {
	p.tb.Helper()
	_ = p.cmd.Process.Kill()
	p.Wait()
}

// Stop asks the process to end, unless it has ended, and waits for its end.
func (p *Process) Stop() {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.tb, err, p.said())
	}
	p.Wait()
}

// Wait waits for the end of the process and returns its exit code, 128+n for signal n.
func (p *Process) Wait() int {
	p.tb.Helper()
	await.Receive(p.tb, p.Limit, p.Done, func() string { return "the end of " + p.said() })
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Tell writes a line to the standard input of the process.
func (p *Process) Tell(line string) {
	p.tb.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	require.NoError(p.tb, err, p.said())
}

// CloseStdin ends the standard input of the process.
func (p *Process) CloseStdin() { _ = p.stdin.Close() }

// Line waits for the next line of the standard output.
func (p *Process) Line() string {
	p.tb.Helper()
	return p.Says("")
}

// Says waits for the next line of the standard output that begins with a word.
func (p *Process) Says(word string) string {
	p.tb.Helper()
	for timeout := time.After(p.Limit); ; {
		line, ok := p.Stdout.Line(timeout)
		if !ok {
			require.Fail(p.tb, "no line "+word, p.said())
		}
		if strings.HasPrefix(line, word) {
			return line
		}
	}
}

// Expect waits for the next line of the standard output, and fails if it is another one.
func (p *Process) Expect(line string) {
	p.tb.Helper()
	require.Equal(p.tb, line, p.Line(), p.said())
}

// Lines returns the further lines of the standard output, until the end of the process.
func (p *Process) Lines() iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			if line, ok := p.Stdout.Line(nil); !ok || !yield(line) {
				return
			}
		}
	}
}

// Match waits until a part of its output, which is p.Stdout or p.Stderr, matches, and returns the match and its groups.
func (p *Process) Match(output *capture.Text, expression string) (groups []string) {
	p.tb.Helper()
	pattern := regexp.MustCompile(expression)
	await.Until(p.tb, p.Limit, func() bool {
		groups = pattern.FindStringSubmatch(output.String())
		return groups != nil
	}, func() string { return expression + " in " + p.said() })
	return groups
}

// Saying waits until output, which is p.Stdout or p.Stderr, contains a text.
func (p *Process) Saying(output *capture.Text, text string) {
	p.tb.Helper()
	p.Match(output, regexp.QuoteMeta(text))
}
