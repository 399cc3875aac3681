//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
)

const nobody = 65534 // PgBouncer refuses to run as root

func findPgBouncer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	notRun(t, "no program pgbouncer; Debian has it in the package pgbouncer")
	return ""
}

// startPgBouncer starts one in front of the database and returns the URL of the
// database through it.
func startPgBouncer(t *testing.T, dsn, mode string, poolSize int) string {
	t.Helper()
	program := findPgBouncer(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "pglatch-pgbouncer-") //nolint:usetesting // t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())
	password := ""
	if p, ok := u.User.Password(); ok {
		password = " password='" + p + "'"
	}
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%s user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
`, strings.TrimPrefix(u.Path, "/"), u.Hostname(), u.Port(), u.User.Username(), password, addr.Port, mode, poolSize)
	path := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o644))

	cmd := exec.Command(program, "-q", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port))
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	return u.String()
}

// plain connects without prepared statements, which transaction mode breaks.
func plain(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestATransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode string
		size int
	}{{"transaction", 20}, {"transaction", 1}, {"statement", 20}, {"statement", 1}} {
		t.Run(fmt.Sprintf("%s, %d", c.mode, c.size), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			via := startPgBouncer(t, dsn, c.mode, c.size)
			other := plain(t, via)
			var before, after string
			const settings = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('idle_session_timeout'))"
			require.NoError(t, other.QueryRow(t.Context(), settings).Scan(&before))
			_, err := advisory.Open(t.Context(), advisory.Config{DSN: via})
			require.ErrorIs(t, err, advisory.ErrPooler)
			require.ErrorContains(t, err, "pool_mode=session")
			for range 20 {
				require.NoError(t, other.QueryRow(t.Context(), settings).Scan(&after))
				assert.Equal(t, before, after, "another client has our settings")
			}
		})
	}
}

// The control: what a transaction pooler does to a lock.
func TestThroughATransactionPoolerTwoClientsGetOneLock(t *testing.T) {
	t.Parallel()
	via := startPgBouncer(t, pgtest.DSN(t), "transaction", 1)
	for range 2 {
		var held bool
		require.NoError(t, plain(t, via).QueryRow(t.Context(), "SELECT pg_try_advisory_lock(7)").Scan(&held))
		assert.True(t, held)
	}
}

func TestThroughASessionPoolerEverythingWorks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	via := startPgBouncer(t, dsn, "session", 20)
	judge := connect(t, dsn)
	a, b := open(t, via, 2*time.Second), open(t, via, 2*time.Second)
	lock := acquire(t, a, agents.ID(1))
	_, err := b.TryAcquire(t.Context(), agents.ID(1))
	require.ErrorIs(t, err, advisory.ErrHeld)

	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, agents.ID(1))
		ended <- err
	}()
	requireLocks(t, judge, 1, 1)
	cancel(errEnough)
	require.ErrorIs(t, <-ended, errEnough)
	requireLocks(t, judge, 1, 0)

	granted := make(chan *advisory.Lock)
	go func() {
		lock, err := b.Acquire(t.Context(), agents.ID(1))
		assert.NoError(t, err)
		granted <- lock
	}()
	requireLocks(t, judge, 1, 1)
	require.NoError(t, lock.Release())
	lock = <-granted

	for held := range b.Held() {
		_, err := judge.Exec(t.Context(), "SELECT pg_terminate_backend($1)", held.PID)
		require.NoError(t, err)
	}
	requireLost(t, lock, patience)
	require.NoError(t, acquire(t, b, agents.ID(1)).Release())
	requireLocks(t, judge, 0, 0)
}

func TestASessionPoolerWithASinglePlaceIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	via := startPgBouncer(t, pgtest.DSN(t), "session", 1)
	l, err := advisory.Open(t.Context(), advisory.Config{DSN: via, MaxConns: 1})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, acquire(t, l, agents.ID(1)).Release())
}
