package postgres

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/once"
)

// DefaultTable holds the ticks of all jobs of a database.
const DefaultTable = "public.pglatch_once"

// Keeps is how long a Store knows that a tick was run. Rows are kept for a day more.
const Keeps = 7 * 24 * time.Hour

// A Config says where ticks are kept. One of Pool and DSN is required; the zero value of every other
// field is a good default.
type Config struct {
	// Pool makes the connections: to the primary, directly or through a pooler in whatever mode. It
	// stays the caller's. A run needs one of them, for a moment, three times in a TTL: where the work of many jobs
	// can take them all, set DSN instead. Through a transaction pooler that knows no prepared statements it needs
	// pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol.
	Pool *pgxpool.Pool

	// DSN is a PostgreSQL URL or keyword/value string, for a pool of the Store's own. Unless it sets
	// default_query_exec_mode, nothing is prepared, so that it may lead through a transaction pooler.
	DSN string

	// Table is "table" of schema public, or "schema.table", taken as written. "" = DefaultTable.
	Table string

	// CreateTable makes the table if it is not there, with the role of the connection. false = an error
	// that says how to make it.
	CreateTable bool
}

func (c Config) validated() error {
	switch {
	case c.Pool == nil && c.DSN == "":
		return &once.InvalidError{Field: "Config.DSN", Value: "empty", Remedy: "set it to the database's URL, such as postgres://localhost/shop, or set Pool"}
	case c.Pool != nil && c.DSN != "":
		return &once.InvalidError{Field: "Config.DSN", Value: "set beside Pool", Remedy: "set one of the two"}
	}
	return validateTable(c.Table)
}

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,57}$`)

func validateTable(table string) error {
	if !tableName.MatchString(table) {
		return &once.InvalidError{Field: "Config.Table", Value: table, Remedy: "use table or schema.table, of letters, digits and _, at most 58 and 63"}
	}
	return nil
}

// split returns the schema and the name of a valid table.
func split(table string) (schema, name string) {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		return "public", table
	}
	return schema, name
}

// quoted is the name of a valid table as SQL.
func quoted(table string) string {
	schema, name := split(table)
	return pgx.Identifier{schema, name}.Sanitize()
}

// open makes a pool, which does not connect yet. Its error never quotes the DSN, because there may be a
// password in it.
func open(dsn string) (*pgxpool.Pool, error) {
	config, err := pgdsn.ParsePool(dsn)
	if err != nil {
		return nil, &once.InvalidError{Field: "Config.DSN", Value: "invalid", Remedy: err.Error()}
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}
