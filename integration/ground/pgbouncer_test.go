//go:build integration

package ground

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

func TestOpenRefusesAPoolerThatSharesSessions(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		program := findPgBouncer(t)
		server := pgtest.StartServer(t, pgserver.Options{})
		for name, settings := range map[string][]string{
			"transaction mode":                        {"pool_mode=transaction"},
			"transaction mode with one session":       {"pool_mode=transaction", "default_pool_size=1"},
			"transaction mode with resets in between": {"pool_mode=transaction", "server_reset_query_always=1"},
			"statement mode":                          {"pool_mode=statement"},
		} {
			t.Run(name, func(t *testing.T) {
				dsn := startPgBouncer(t, program, server, settings...)
				other := connect(t, dsn) // another client of the pooler
				const settings = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('idle_session_timeout'))"
				var before, after string
				require.NoError(t, other.QueryRow(t.Context(), settings, pgx.QueryExecModeSimpleProtocol).Scan(&before))
				locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: dsn}))
				require.Nil(t, locker)
				for range 20 {
					require.NoError(t, other.QueryRow(t.Context(), settings, pgx.QueryExecModeSimpleProtocol).Scan(&after))
					require.Equal(t, before, after, "the other client got our settings")
				}
				require.ErrorIs(t, err, advisory.ErrPooler)
				require.NotErrorIs(t, err, advisory.ErrUnavailable)
				require.ErrorContains(t, err, "pool_mode=session")
			})
		}
	})
}

func TestBehindAPoolerInSessionModeEverythingWorks(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		program := findPgBouncer(t)
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := startPgBouncer(t, program, server, "pool_mode=session")
		requireEverythingWorks(t, dsn, connect(t, server.DSN("")))
	})
}

// Nothing can be told of a pooler that has no second session to give. It is not
// refused for that.
func TestAFullSessionPoolerIsNotRefused(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		program := findPgBouncer(t)
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := startPgBouncer(t, program, server, "pool_mode=session", "default_pool_size=1")
		locker := open(t, advisory.Config{DSN: dsn, MaxConns: 1})
		err := locker.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
			requireLocks(t, connect(t, server.DSN("")), 1, 0)
			return ctx.Err()
		})
		require.NoError(t, err)
	})
}

// What could not be told of the pooler when one connection was made is asked again
// with the next; what could is not.
func TestAnOpenQuestionToAPoolerIsAskedAgain(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		program := findPgBouncer(t)
		server := pgtest.StartServer(t, pgserver.Options{})
		for size, connections := range map[string]int64{"1": 4, "5": 3} { // each question costs one more
			t.Run("a pool of "+size, func(t *testing.T) {
				t.Parallel()
				var made atomic.Int64
				config := advisory.Config{
					DSN: startPgBouncer(t, program, server, "pool_mode=session", "default_pool_size="+size), MaxConns: 1,
					BeforeConnect: func(context.Context, *pgx.ConnConfig) error {
						made.Add(1)
						return nil
					},
				}
				locker := open(t, config)
				require.EqualValues(t, 2, made.Load())
				lock := acquire(t, locker, agents.ID(1))
				_, err := connect(t, server.DSN("")).Exec(t.Context(), "SELECT pg_terminate_backend($1)", pidOf(t, locker))
				require.NoError(t, err)
				requireLost(t, lock)
				require.NoError(t, acquire(t, locker, agents.ID(1)).Release())
				require.Equal(t, connections, made.Load())
			})
		}
	})
}

func TestAClientThatLeavesASessionPoolerLeavesNoLock(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		program := findPgBouncer(t)
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := startPgBouncer(t, program, server, "pool_mode=session")
		direct := connect(t, server.DSN(""))
		locker := open(t, advisory.Config{DSN: dsn})
		lock := acquire(t, locker, agents.ID(1))
		requireLocks(t, direct, 1, 0)
		locker.Close()
		requireLost(t, lock)
		requireLocks(t, direct, 0, 0)
	})
}

// The control: what Open keeps from happening.
func TestATransactionPoolerGrantsOneLockToTwoClients(t *testing.T) {
	t.Parallel()
	program := findPgBouncer(t)
	server := pgtest.StartServer(t, pgserver.Options{})
	dsn := startPgBouncer(t, program, server, "pool_mode=transaction")
	for range 2 {
		require.True(t, tryLock(t, connect(t, dsn)))
	}
	require.False(t, tryLock(t, connect(t, server.DSN(""))))
}

// tryLock takes a lock without pglatch.
func tryLock(t *testing.T, conn *pgx.Conn) (granted bool) {
	t.Helper()
	// No prepared statement: a transaction pooler of this age knows none.
	err := conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(777)", pgx.QueryExecModeSimpleProtocol).Scan(&granted)
	require.NoError(t, err)
	return granted
}

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

// startPgBouncer runs a PgBouncer before the server until the end of the test and
// returns the connection string that goes through it.
func startPgBouncer(t *testing.T, program string, server *pgserver.Server, settings ...string) (dsn string) {
	t.Helper()
	port := freePort(t)
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d user=postgres", server.Host(), server.Port()),
		"[pgbouncer]",
		"listen_addr=127.0.0.1", "listen_port=" + strconv.Itoa(port), "unix_socket_dir=", "auth_type=any",
	}, settings...)
	as := serviceAccount(t)
	dir := serviceDir(t, as, map[string][]byte{"pgbouncer.ini": []byte(strings.Join(lines, "\n") + "\n")})
	output, err := os.Create(dir + "/output")
	require.NoError(t, err)
	defer output.Close()

	cmd := exec.Command(program, dir+"/pgbouncer.ini")
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/postgres", RawQuery: "sslmode=disable",
	}
	ready := func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		if err != nil {
			return false
		}
		return conn.Close(context.WithoutCancel(t.Context())) == nil
	}
	if !poll(ready) {
		text, _ := os.ReadFile(output.Name())
		require.Fail(t, "PgBouncer does not answer", "%s", text)
	}
	return u.String()
}

// poll asks until the answer is true, and gives up after patience.
func poll(condition func() bool) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for timeout := time.After(patience); ; {
		if condition() {
			return true
		}
		select {
		case <-ticker.C:
		case <-timeout:
			return false
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
