package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/introspect"
	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultTable is the table with the terms of all shards of a database. Two more tables have the same
// name, with _member and _order appended.
const DefaultTable = "public.pglatch_shard"

// A ConnectFunc opens a connection with the given settings. It must keep them: they make the connection fit
// for a lock session.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// A Config configures how a Backend reaches a group of shards. Namespace and one of DSN and ConnConfig
// are required. The zero value of every other field is a good default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string. It must lead to the primary, not through a pool in
	// transaction mode.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, replaces DSN for settings that a string cannot express: TLS,
	// dialers, tracers. It is copied.
	ConnConfig *pgx.ConnConfig

	// BeforeConnect may change the copy of the settings before each connection is made, for example to
	// rotate passwords. nil = no change.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Connect opens the connections, for tests and custom drivers. nil = pgx.ConnectConfig.
	Connect ConnectFunc

	// Namespace identifies the group: its shard "7" is the session lock on Namespace.Text("7"). Nothing else
	// should take locks in it. It is the same for all nodes.
	Namespace namespace.Namespace

	// Table stores the terms: "table" in schema public, or "schema.table", taken literally, of 56 bytes at
	// most. "" = DefaultTable.
	Table string

	// CreateTable lets the node create missing tables, with the connection's role. false = a missing table is
	// an error that says how to create it.
	CreateTable bool

	// MaxLocks limits claims by the server's total number of locks, of every kind and owner: while the server
	// has this many, a claim takes no more. All sessions share the lock table, and when it is full, no
	// session can do anything. 0 = three quarters of max_locks_per_transaction × (max_connections +
	// max_prepared_transactions).
	MaxLocks int64

	// Answer configures the node's answers to queries about its shards; see package introspect. With the zero
	// value, the node answers. Answers use one more connection, which all shards, elections and Lockers of a
	// process in one database share.
	Answer introspect.Config

	// GuardTimeout is how long a claim waits for the guarded transactions of earlier terms of its shard.
	// After that, the claim ends their sessions with pg_terminate_backend, which rolls them back. 0 = the
	// duration of the lease; negative = the claim waits until they end.
	//
	// To end those sessions, the connection's role needs the privileges of those sessions' roles, or of
	// pg_signal_backend. Without them the claim keeps waiting and reports who may end the sessions.
	GuardTimeout time.Duration

	// Logger receives events that are reported nowhere else: shards that cannot be claimed, and sessions
	// that a claim ends (Warn). nil = discard.
	Logger *slog.Logger
}

// validated returns c with its defaults, and its connection settings.
func (c Config) validated() (Config, *pgx.ConnConfig, error) {
	c.Logger = background.Logger(c.Logger)
	c.Table = cmp.Or(c.Table, DefaultTable)
	switch {
	case c.Namespace.Number() == 0:
		return c, nil, wrong("Namespace", "missing", `name the group with a namespace of its own, such as namespace.Must(7, "tenant")`)
	case !pgtable.Valid(c.Table, memberSuffix, orderSuffix):
		return c, nil, wrong("Table", fmt.Sprintf("%q", c.Table), "use table or schema.table, of letters, digits and _, at most 56 of the table")
	case c.MaxLocks < 0:
		return c, nil, wrong("MaxLocks", c.MaxLocks, "use a positive number, or 0 for three quarters of what the server has room for")
	}
	cc, problem := pgdsn.Connection(c.DSN, c.ConnConfig)
	if problem != nil {
		return c, nil, wrong(problem.Field, problem.Value, problem.Remedy)
	}
	return c, cc, nil
}

func wrong(field string, value any, remedy string) error {
	return &leaderdriver.ConfigError{Field: field, Value: value, Remedy: remedy}
}
