package service

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// HAProxy runs an HAProxy that spreads connections over servers, in mode tcp, as PgBouncer does.
func HAProxy(t *testing.T, servers ...*pgserver.Server) (dsn string) {
	t.Helper()
	program := notrun.Program(t, "no program haproxy; Debian has it in the package haproxy", "haproxy", "/usr/sbin/haproxy")
	port := freePort(t)
	lines := []string{
		"defaults", "mode tcp", "timeout connect 10s", "timeout client 1h", "timeout server 1h",
		"listen postgresql", "bind 127.0.0.1:" + strconv.Itoa(port), "balance roundrobin",
	}
	for i, server := range servers {
		lines = append(lines, fmt.Sprintf("server server%d %s:%d", i, server.Host(), server.Port()))
	}
	dsn, _ = serve(t, port, "postgres", []string{program, "-db", "-f", "haproxy.cfg"}, map[string][]byte{"haproxy.cfg": text(lines)})
	return dsn
}
