package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/once"
)

// DefaultTable is the table for the ticks of all jobs of a database.
const DefaultTable = "public.pglatch_once"

// Keeps is how long a Store remembers that a tick was run. Rows are kept for one more day.
const Keeps = 7 * 24 * time.Hour

// A Config says where a Store keeps ticks. One of Pool and DSN is required. The zero value of
// every other field is a good default.
type Config struct {
	// Pool makes the connections to the primary, directly or through a pooler in any mode. The
	// caller owns the pool. A run needs a connection for a moment, three times per TTL. If the work
	// of many jobs can occupy all connections, set DSN instead. If a transaction pooler does not
	// support prepared statements, set pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol.
	Pool *pgxpool.Pool

	// DSN is a PostgreSQL URL or keyword/value string, for a pool of the Store's own. Unless
	// the DSN sets default_query_exec_mode, the Store prepares no statements, so the connection
	// may go through a transaction pooler.
	DSN string

	// Table is "table" of schema public, or "schema.table", taken literally. "" = DefaultTable.
	Table string

	// CreateTable creates the table if it does not exist, with the role of the connection. false =
	// if the table does not exist, the error says how to create it.
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

func validateTable(table string) error {
	if !pgtable.Valid(table, indexSuffix) {
		return &once.InvalidError{Field: "Config.Table", Value: table, Remedy: "use table or schema.table, of letters, digits and _, at most 58 and 63"}
	}
	return nil
}
