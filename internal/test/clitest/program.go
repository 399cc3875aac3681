package clitest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is the time limit for short events on a slow and busy machine.
const Patience = 30 * time.Second

// environ is the environment of a test's program: that of the test without variables that name a
// database or change the output, plus env ("NAME=value").
func environ(env []string) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "PG") || slices.Contains([]string{"DATABASE_URL", "NO_COLOR", "TERM"}, name)
	})
	inherited = append(inherited, "GORACE=atexit_sleep_ms=0") // otherwise each run takes a second longer
	return append(inherited, env...)
}

// At is the environment that names a database.
func At(dsn string, more ...string) []string { return append(more, "DATABASE_URL="+dsn) }

// Run runs the program to its end.
func Run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := Start(t, env, args...)
	code = p.Wait()
	return p.Stdout.String(), p.Stderr.String(), code
}

// A Program is a running program. It is killed at the end of the test.
type Program struct {
	t              *testing.T
	cmd            *exec.Cmd
	Stdout, Stderr output
	Done           chan struct{}
}

// Start starts the program. Its standard input is empty.
func Start(t *testing.T, env []string, args ...string) *Program {
	t.Helper()
	return StartCommand(t, env, Binary, args...)
}

// StartCommand starts another program instead, such as one that starts the program.
func StartCommand(t *testing.T, env []string, name string, args ...string) *Program {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Env = environ(env)
	return start(t, cmd)
}

// start starts cmd, and captures the output that is not redirected yet.
func start(t *testing.T, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{t: t, cmd: cmd, Done: make(chan struct{})}
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = &p.Stdout
	}
	p.cmd.Stderr = &p.Stderr
	p.cmd.WaitDelay = Patience // a grandchild may keep the streams open
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.Done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.Done
	})
	return p
}

// Wait waits for the end and returns the exit code, 128+n for signal n.
func (p *Program) Wait() int {
	p.t.Helper()
	select {
	case <-p.Done:
	case <-time.After(Patience):
		require.Fail(p.t, "the program does not end", "%v\nstdout: %s\nstderr: %s", p.cmd.Args, p.Stdout.String(), p.Stderr.String())
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Signal sends the program a signal.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s), "stdout: %s\nstderr: %s", p.Stdout.String(), p.Stderr.String())
}

// Saying waits until o, which is p.stdout or p.stderr, contains text.
func (p *Program) Saying(o *output, text string) {
	p.t.Helper()
	Eventually(p.t, func() bool { return strings.Contains(o.String(), text) },
		func() string { return text + "\nstdout: " + p.Stdout.String() + "\nstderr: " + p.Stderr.String() })
}

// Eventually waits until condition holds. After Patience it fails with the text of what.
func Eventually(t *testing.T, condition func() bool, what func() string) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			require.Fail(t, "did not happen", what())
		}
		<-tick.C
	}
}

// An output is a stream that can be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Decode decodes one JSON document, strictly.
func Decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	require.NoError(t, d.Decode(&v), text)
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "one document: %s", text)
	return v
}

// DecodeLines decodes one document per line.
func DecodeLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		all = append(all, Decode[T](t, s.Text()))
	}
	return all
}
