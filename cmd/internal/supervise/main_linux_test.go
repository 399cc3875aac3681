package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

const patience = await.Soon

// TestMain is also a program that supervises $PGLATCH_SUPERVISE, a shell command.
func TestMain(m *testing.M) {
	script, ok := os.LookupEnv("PGLATCH_SUPERVISE")
	if !ok {
		pgtest.Main(m)
	}
	signals, stop := supervise.Notify()
	defer stop()
	c := shell(script)
	c.Signals = signals
	ctx := context.Background()
	if path := os.Getenv("PGLATCH_UNTIL"); path != "" {
		ctx = punctual{ctx, path}
	}
	result, err := supervise.Run(ctx, c)
	if err != nil {
		fmt.Println("error:", err)
	}
	if os.Getenv("PGLATCH_TELL") != "" {
		fmt.Printf("interrupted by: %v\n", result.Interrupted)
	}
	os.Exit(result.ExitCode)
}

// A punctual context ends when the file is there, and says so before it tells, as
// that of a lock does when the process was stopped.
type punctual struct {
	context.Context
	path string
}

func (c punctual) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.Err() == nil {
			<-time.After(20 * time.Millisecond)
		}
	}()
	return done
}

func (c punctual) Err() error {
	if _, err := os.Stat(c.path); err == nil {
		return context.DeadlineExceeded
	}
	return nil
}

func shell(script string) supervise.Command {
	return supervise.Command{Args: []string{"/bin/sh", "-c", script}}
}

// An outcome is what Run returned.
type outcome struct {
	supervise.Result
	err error
}

// A process is a command under supervision, seen from its test.
type process struct {
	t       *testing.T
	cancel  context.CancelFunc
	signals chan<- os.Signal
	lines   *bufio.Scanner
	outcome chan outcome
}

// start runs a command whose lines the test reads.
func start(t *testing.T, c supervise.Command) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w, err := os.Pipe()
	require.NoError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	signals := make(chan os.Signal)
	c.CloseStdin, c.Stdout, c.Stderr, c.Signals = true, w, null, signals
	p := &process{t: t, cancel: cancel, signals: signals, lines: bufio.NewScanner(r), outcome: make(chan outcome, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err := supervise.Run(ctx, c)
		_ = w.Close()
		p.outcome <- outcome{result, err}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = r.Close()
		_ = null.Close()
	})
	return p
}

// reads returns the command's next line.
func (p *process) reads() string {
	p.t.Helper()
	require.True(p.t, p.lines.Scan(), "the command says no more")
	return p.lines.Text()
}

// readsPID returns the process that the command's next line names.
func (p *process) readsPID() int {
	p.t.Helper()
	pid, err := strconv.Atoi(p.reads())
	require.NoError(p.t, err)
	return pid
}

func (p *process) ends() supervise.Result {
	p.t.Helper()
	o := await.Receive(p.t, patience, p.outcome, "the command does not end")
	require.NoError(p.t, o.err)
	return o.Result
}

// exists reports whether a process is more than a zombie.
func exists(pid int) bool {
	s := state(pid)
	return s != "" && s != "Z"
}

// requireGone waits for the end of the process.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	await.Until(t, patience, func() bool { return !exists(pid) })
}

// kill ends a process that a control left behind.
func kill(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	requireGone(t, pid)
}
