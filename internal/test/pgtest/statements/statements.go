// Package statements counts the distinct statements that a server receives. A value in a statement's text makes
// it another statement, for pg_stat_statements and for drivers that prepare.
package statements

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A Server logs all statements, and counts them with pg_stat_statements if available.
type Server struct {
	*pgserver.Server
	counts bool
}

// Start starts a Server for a test.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{Server: pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"log_statement": "all"}})}
	admin, err := pgx.Connect(t.Context(), s.DSN(""))
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_stat_statements')").Scan(&s.counts))
	if s.counts {
		_, err = admin.Exec(t.Context(), "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
		require.NoError(t, err)
		require.NoError(t, s.Restart(t.Context(), pgserver.Fast))
	}
	return s
}

// A Counter counts the statements in one database since its creation.
type Counter struct {
	DSN    string
	admin  *pgx.Conn
	server *Server
	from   int64
}

// Count returns a Counter of a new database.
func (s *Server) Count(t *testing.T) *Counter {
	t.Helper()
	dsn, err := s.CreateDatabase(t.Context())
	require.NoError(t, err)
	c := &Counter{DSN: dsn, server: s, admin: pgtest.Connect(t, dsn)}
	if s.counts {
		_, err = c.admin.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements")
		require.NoError(t, err)
	}
	c.Reset(t)
	return c
}

// Reset clears the counts.
func (c *Counter) Reset(t *testing.T) {
	t.Helper()
	var err error
	c.from, err = c.server.LogOffset()
	require.NoError(t, err)
	if c.server.counts {
		_, err = c.admin.Exec(t.Context(), "SELECT pg_stat_statements_reset()")
		require.NoError(t, err)
	}
}

// Entries returns the number of pg_stat_statements' entries for the project's statements; ok = the server has
// it.
func (c *Counter) Entries(t *testing.T) (n int, ok bool) {
	t.Helper()
	if !c.server.counts {
		return 0, false
	}
	const sql = `SELECT count(*) FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (query LIKE '%pg\_catalog.%' OR query LIKE '%pglatch%')`
	require.NoError(t, c.admin.QueryRow(t.Context(), sql).Scan(&n))
	return n, true
}

// Texts returns the project's statements in the log and how often each was sent. Constants are omitted as in
// pg_stat_statements, which keeps the whole text of a DO block.
func (c *Counter) Texts(t *testing.T) map[string]int {
	t.Helper()
	log, err := c.server.LogSince(c.from)
	require.NoError(t, err)
	var ours []string
	for line := range strings.SplitSeq(strings.ReplaceAll(log, "\n\t", "\r"), "\n") {
		if strings.Contains(line, "@"+c.admin.Config().Database+"/") {
			ours = append(ours, strings.ReplaceAll(line, "\r", "\n"))
		}
	}
	return distinct(ours)
}

// Prepared returns how many statements the session of conn has prepared.
func Prepared(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements", pgx.QueryExecModeSimpleProtocol).Scan(&n))
	return n
}

var (
	logged   = regexp.MustCompile(`(?s)LOG:  (?:statement|execute [^:]*): (.*)`)
	constant = regexp.MustCompile(`'[^']*'|\b\d+\b`)
	block    = regexp.MustCompile(`(?s)DO \$pglatch\$.*\$pglatch\$`)
)

// distinct counts the project's statements among the entries of a log: those that name pg_catalog or pglatch,
// which tests' own statements do not, and the few that open a connection.
func distinct(entries []string) map[string]int {
	statements := map[string]int{}
	for _, entry := range entries {
		m := logged.FindStringSubmatch(entry)
		if m == nil {
			continue
		}
		for _, do := range block.FindAllString(m[1], -1) {
			statements[do]++
		}
		for part := range strings.SplitSeq(block.ReplaceAllString(m[1], ""), ";") {
			if part = strings.TrimSpace(constant.ReplaceAllString(part, "?")); strings.Contains(part, "pg_catalog.") || strings.Contains(part, "pglatch") {
				statements[part]++
			}
		}
	}
	return statements
}
