package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// settings leave room for 1,000 locks on one connection each, and for 1,000,000 locks in all.
// Syncing to disk does not affect advisory locks, but it affects locks in tables. The server's
// default here is not to sync, which flatters them.
var settings = map[string]string{"max_connections": "1200", "max_locks_per_transaction": "1024"}

// Limits are the capacities of a PostgreSQL server.
type Limits struct {
	Connections int // available to clients
	Locks       int
}

// spareConnections stay free for sessions that observe.
const spareConnections = 20

// postgres starts a server, or creates a database on the given one.
func (s *Set) postgres(ctx context.Context, dsn string) error {
	if dsn == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{Settings: settings})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, server)
		dsn = server.DSN("")
	}
	database, err := pgserver.CreateDatabase(ctx, dsn)
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	s.closers = append(s.closers, dropper{context.WithoutCancel(ctx), dsn, database})
	s.Addresses[system.Postgres] = database
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read from
	var version string
	var connections, perTransaction, prepared int
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('max_connections')::int,
		current_setting('max_locks_per_transaction')::int, current_setting('max_prepared_transactions')::int`).
		Scan(&version, &connections, &perTransaction, &prepared)
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	s.Versions[system.Postgres] = version
	s.Limits = Limits{connections - spareConnections, perTransaction * (connections + prepared)}
	return nil
}

// A dropper removes the run's database.
type dropper struct {
	ctx             context.Context
	admin, database string
}

func (d dropper) Close() error { return pgserver.DropDatabase(d.ctx, d.admin, d.database) }

// pgbench looks for the program beside PostgreSQL's other programs and in Debian's directories.
func (s *Set) pgbench(ctx context.Context) {
	var candidates []string
	if installation, err := pgserver.Find(ctx, 0); err == nil {
		candidates = append(candidates, filepath.Join(installation.BinDir, "pgbench"))
	}
	if path, err := exec.LookPath("pgbench"); err == nil {
		candidates = append(candidates, path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench") // the pattern is well formed
	slices.Reverse(found)
	for _, path := range append(candidates, found...) {
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err == nil {
			s.Addresses[system.PGBenchTools] = path
			s.Versions[system.PGBenchTools] = strings.TrimSpace(strings.TrimPrefix(string(out), "pgbench (PostgreSQL)"))
			return
		}
	}
	s.Missing[system.PGBenchTools] = "there is no pgbench: apt-get install postgresql-15, or brew install postgresql"
}
