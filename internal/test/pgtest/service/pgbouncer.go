package service

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// PgBouncer runs a PgBouncer in front of the server until the end of the test and returns the
// connection string that goes through it. settings are lines of the section [pgbouncer] of its
// configuration, such as "pool_mode=transaction". Without the program the test reports that it did
// not run, and is skipped; in CI it fails.
func PgBouncer(t *testing.T, server *pgserver.Server, settings ...string) (dsn string) {
	t.Helper()
	program := findPgBouncer(t)
	port := freePort(t)
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d user=postgres", server.Host(), server.Port()),
		"[pgbouncer]",
		"listen_addr=127.0.0.1", "listen_port=" + strconv.Itoa(port), "unix_socket_dir=", "auth_type=any",
	}, settings...)
	as := account(t)
	dir := ownedDir(t, as, map[string][]byte{"pgbouncer.ini": []byte(strings.Join(lines, "\n") + "\n")})
	cmd := proctest.Command(t, program, dir+"/pgbouncer.ini")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
	proctest.Start(t, cmd)
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/postgres", RawQuery: "sslmode=disable",
	}
	await.Until(t, await.Patience, func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		return err == nil && conn.Close(context.WithoutCancel(t.Context())) == nil
	}, "PgBouncer does not answer")
	return u.String()
}

func findPgBouncer(t *testing.T) string {
	t.Helper()
	return notrun.Program(t, "no program pgbouncer; Debian has it in the package pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer")
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}
