package cli_test

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

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// patience bounds what must happen soon on a slow and busy machine.
const patience = 30 * time.Second

// environ is the environment of a test's program: that of the test without what
// names a database or changes the output, and env ("NAME=value").
func environ(env []string) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "PG") || slices.Contains([]string{"DATABASE_URL", "NO_COLOR", "TERM"}, name)
	})
	inherited = append(inherited, "GORACE=atexit_sleep_ms=0") // or each run takes a second more
	return append(inherited, env...)
}

// at is the environment that names a database.
func at(dsn string, more ...string) []string { return append(more, "DATABASE_URL="+dsn) }

// run runs the program to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := start(t, env, args...)
	code = p.wait()
	return p.stdout.String(), p.stderr.String(), code
}

// A program is one that runs. It is killed at the end of the test.
type program struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{}
}

// start starts the program. Its standard input is empty.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return startCommand(t, env, binary, args...)
}

// startCommand starts another program in its place, such as one that starts it.
func startCommand(t *testing.T, env []string, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Env = environ(env)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = patience // a grandchild may keep the streams
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// wait waits for the end and returns the exit code, 128+n for signal n.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.Fail(p.t, "the program does not end", "%v\nstdout: %s\nstderr: %s", p.cmd.Args, p.stdout.String(), p.stderr.String())
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// saying waits until text stands in o, which is p.stdout or p.stderr.
func (p *program) saying(o *output, text string) {
	p.t.Helper()
	eventually(p.t, func() bool { return strings.Contains(o.String(), text) },
		func() string { return text + "\nstdout: " + p.stdout.String() + "\nstderr: " + p.stderr.String() })
}

func eventually(t *testing.T, condition func() bool, what func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
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

// decode reads one document of JSON, strictly.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	require.NoError(t, d.Decode(&v), text)
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "one document: %s", text)
	return v
}

// decodeLines reads a document on each line.
func decodeLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		all = append(all, decode[T](t, s.Text()))
	}
	return all
}

// connect opens a session with an application_name.
func connect(t *testing.T, dsn, application string) *pgx.Conn {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cc.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// waitFor makes conn wait in a statement until the end of the test, and returns
// when it stands in the server's queue.
func waitFor(t *testing.T, dsn string, conn *pgx.Conn, sql string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	pid := conn.PgConn().PID()
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, sql)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close(context.WithoutCancel(ctx))
		<-conn.PgConn().CleanupDone()
	})
	look := connect(t, dsn, "look")
	eventually(t, func() bool {
		var waits bool
		err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted AND waitstart IS NOT NULL)`, pid).Scan(&waits)
		return err == nil && waits
	}, func() string { return sql + " does not wait" })
	require.NoError(t, look.Close(t.Context()))
}
