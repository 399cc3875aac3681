package service

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// Pgpool runs a pgpool-II in front of a primary and its standbys, as PgBouncer does. The connection string leads to a database of
// its own, because pgpool-II keeps no connections to the database postgres. settings are lines of pgpool.conf, such as
// "load_balance_mode=off".
func Pgpool(t *testing.T, servers []*pgserver.Server, settings ...string) (dsn string) {
	t.Helper()
	program := notrun.Program(t, "no program pgpool; Debian has it in the package pgpool2", "pgpool", "/usr/sbin/pgpool")
	port := freePort(t)
	database := fmt.Sprintf("pgpool_%d", port)
	admin, err := pgx.Connect(t.Context(), servers[0].DSN(""))
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+database)
	require.NoError(t, err)
	lines := []string{
		"listen_addresses='127.0.0.1'", fmt.Sprintf("port=%d", port), "socket_dir='.'", "pcp_listen_addresses=''", fmt.Sprintf("pcp_port=%d", port), "pcp_socket_dir='.'",
		"pid_file_name='pgpool.pid'", "logdir='.'", "num_init_children=8", "sr_check_user='postgres'", "sr_check_period=0", "health_check_period=0",
	}
	for i, server := range servers {
		lines = append(lines, fmt.Sprintf("backend_hostname%d='%s'", i, server.Host()), fmt.Sprintf("backend_port%d=%d", i, server.Port()))
	}
	dsn, p := serve(t, port, database, []string{program, "-n", "-D", "-f", "pgpool.conf", "-F", "pcp.conf", "-a", "pool_hba.conf"}, map[string][]byte{
		"pgpool.conf": text(append(lines, settings...)), "pcp.conf": nil, "pool_hba.conf": nil,
	})
	t.Cleanup(func() { // it ends its children, which would outlive a kill
		p.Signal(syscall.SIGINT)
		p.Wait()
	})
	return dsn
}
