package pgserver_test

import (
	"context"
	"encoding/json"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

func TestNothingRemainsWhenTheProcessEnds(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name, mode string
		end        func(t *testing.T, p *proctest.Process)
	}{
		{"by kill -9", "wait", signalWith(syscall.SIGKILL)},
		{"by Ctrl-C", "wait", signalWith(syscall.SIGINT)},
		{"without a Close", "wait", closeInput},
		{"by a panic", "panic", closeInput},
	}
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			p, r := startHelper(t, end.mode, executable(t), nil)
			require.NoError(t, ping(t.Context(), r.DSN), "the server must run before the end")
			require.DirExists(t, r.Dir)

			end.end(t, p)

			requireGone(t, r)
		})
	}
}

// This is the control of the test above: it shows that the watchdog does the cleanup.
func TestAKilledProcessWithoutItsWatchdogLeavesItsServer(t *testing.T) {
	t.Parallel()
	p, r := startHelper(t, "wait", executable(t), nil)
	require.NoError(t, syscall.Kill(r.Watchdog, syscall.SIGKILL))
	signalWith(syscall.SIGKILL)(t, p)

	assert.NoError(t, ping(t.Context(), r.DSN))
	assert.DirExists(t, r.Dir)

	require.NoError(t, syscall.Kill(r.PID, syscall.SIGQUIT))
	await.Until(t, await.Patience, func() bool { return ping(t.Context(), r.DSN) != nil })
	require.NoError(t, os.RemoveAll(r.Dir))
}

func TestAnOrdinaryUserStartsAServer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		s, err := pgserver.Start(t.Context(), pgserver.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return
	}
	u, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	install, err := pgserver.Find(t.Context(), 0) // the user nobody may not reach its cache
	require.NoError(t, err)
	as := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	p, r := startHelper(t, "wait", reachableExecutable(t), as, "PGBIN="+install.BinDir)
	require.NoError(t, ping(t.Context(), r.DSN))
	p.CloseStdin()
	requireGone(t, r)
}

func TestCloseRemovesEverythingAlsoAfterKill(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		s, err := pgserver.Start(t.Context(), pgserver.Options{})
		require.NoError(t, err)
		r := report{DSN: s.DSN(""), Dir: s.Dir()}
		if kill {
			require.NoError(t, s.Kill())
		}
		require.NoError(t, s.Close())
		requireGone(t, r)
		require.NoError(t, s.Close(), "a second Close does nothing")
		require.Error(t, s.Start(t.Context()), "a closed server cannot start")
	}
}

func signalWith(signal syscall.Signal) func(*testing.T, *proctest.Process) {
	return func(t *testing.T, p *proctest.Process) {
		t.Helper()
		p.Signal(signal)
		require.Equal(t, 128+int(signal), p.Wait(), "the helper dies of the signal")
	}
}

func closeInput(_ *testing.T, p *proctest.Process) { p.CloseStdin() }

func startHelper(t *testing.T, mode, binary string, as *syscall.Credential, env ...string) (*proctest.Process, report) {
	t.Helper()
	cmd := proctest.Command(t, binary)
	cmd.Dir = "/"
	cmd.Env = append(append(os.Environ(), helperVariable+"="+mode), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	p := proctest.Start(t, cmd)
	var r report
	require.NoError(t, json.Unmarshal([]byte(p.Line()), &r))
	return p, r
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// reachableExecutable returns a copy of the test binary that every user may run.
func reachableExecutable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgserver-test-") //nolint:usetesting // the parent of t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	binary, err := os.ReadFile(executable(t))
	require.NoError(t, err)
	path := filepath.Join(dir, "pgserver.test")
	require.NoError(t, gobuild.WriteExecutable(path, binary))
	return path
}

func requireGone(t *testing.T, r report) {
	t.Helper()
	await.Until(t, await.Patience, func() bool {
		_, err := os.Stat(r.Dir)
		return os.IsNotExist(err) && ping(t.Context(), r.DSN) != nil
	}, "%s and its server must go", r.Dir)
}

func ping(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
