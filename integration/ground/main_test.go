//go:build integration

package ground

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/lockmode"
	"github.com/pglatch/pglatch/namespace"
)

// patience is how long a test waits for an event.
const patience = 60 * time.Second

var agents = namespace.Must(1, "agent")

func TestMain(m *testing.M) { pgtest.Main(m) }

// open opens a Locker of the test's mode that is closed at the end of the test.
func open(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	config.Timeout = patience
	l, err := advisory.Open(t.Context(), lockmode.Of(t).Config(config))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func acquire(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	return lock
}

// An outcome is what Acquire returned.
type outcome struct {
	lock *advisory.Lock
	err  error
}

// wait acquires in the background. The channel has room, so that nobody needs to
// receive from it.
func wait(ctx context.Context, l *advisory.Locker, key namespace.Key) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lock, err := l.Acquire(ctx, key)
		done <- outcome{lock, err}
	}()
	return done
}

func receive(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(patience):
		require.Fail(t, "the wait did not end")
		return outcome{}
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// requireLocks waits until the connection's database has so many advisory locks,
// granted and waited for.
func requireLocks(t *testing.T, conn *pgx.Conn, granted, waiting int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var g, w int
		err := conn.QueryRow(context.Background(), `SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&g, &w)
		return err == nil && g == granted && w == waiting
	}, patience, 5*time.Millisecond, "%d granted and %d waiting", granted, waiting)
}

// requireLost waits for the loss of a lock.
func requireLost(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	ctx := lock.Context()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		require.Fail(t, "the loss was not noticed")
	}
	var lost *advisory.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	require.ErrorIs(t, lock.Release(), advisory.ErrLost)
}

// notRun says that the machine lacks what a test needs. In CI that is a failure.
func notRun(t *testing.T, why string) {
	t.Helper()
	fmt.Printf("NOT RUN: %s: %s\n", t.Name(), why)
	require.Empty(t, os.Getenv("CI"), why)
	t.SkipNow()
}

// serviceAccount is whom a program runs as that refuses to be root; nil is this
// process's own user.
func serviceAccount(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	require.Fail(t, "there is no user postgres or nobody")
	return nil
}

// serviceDir is a temporary directory with files that belong to the account.
func serviceDir(t *testing.T, as *syscall.Credential, files map[string][]byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch-ground") //nolint:usetesting // t.TempDir is out of the account's reach
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own := func(path string) {
		if as != nil {
			require.NoError(t, os.Chown(path, int(as.Uid), int(as.Gid)))
		}
	}
	own(dir)
	for name, content := range files {
		path := dir + "/" + name
		require.NoError(t, os.WriteFile(path, content, 0o600))
		own(path)
	}
	return dir
}
