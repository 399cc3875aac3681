package service

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
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
	dsn, _ = serve(t, port, "postgres", []string{program, "pgbouncer.ini"}, map[string][]byte{"pgbouncer.ini": text(lines)})
	return dsn
}

func findPgBouncer(t *testing.T) string {
	t.Helper()
	return notrun.Program(t, "no program pgbouncer; Debian has it in the package pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer")
}
