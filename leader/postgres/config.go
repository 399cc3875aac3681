package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultTable is the table with the terms of all elections of a database.
const DefaultTable = "public.pglatch_election"

// A ConnectFunc opens a connection with the given settings. It must keep them: they make the connection fit
// for a lock session.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// A Config configures how a Backend reaches its election. Key and one of DSN and ConnConfig are required. The
// zero value of every other field is a good default.
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

	// Key identifies the election: the holder of the session lock on this key leads or is about to lead.
	// It is a key of a namespace, or a raw key.
	Key namespace.Key

	// Table stores the terms: "table" in schema public, or "schema.table", taken literally. "" =
	// DefaultTable.
	Table string

	// CreateTable lets the node create a missing table, with the connection's role. false = a missing
	// table is an error that says how to create it.
	CreateTable bool

	// With AwaitTable, a missing table is a transient error: the node waits until somebody creates the table.
	// false = the error matches leader.ErrPermanent.
	AwaitTable bool

	// With NoTerms, the election does not use the table. Terms are driver.Term{}, and a leader does
	// not know whether its predecessor ended in good order. Guards still work.
	NoTerms bool

	// GuardTimeout is how long a takeover waits for the guarded transactions of earlier terms. After that,
	// the candidate ends their sessions with pg_terminate_backend, which rolls them back. 0 = the duration
	// of the lease; negative = the takeover waits until they end.
	//
	// To end those sessions, the candidate's role needs the privileges of those sessions' roles, or of
	// pg_signal_backend. Without them the takeover keeps waiting and reports who may end the sessions.
	GuardTimeout time.Duration

	// Answer configures the node's answers to status queries, and whether it resigns on request; see package
	// introspect. With the zero value, it answers and does not resign. Answers use one more connection,
	// which all elections and Lockers of a process in one database share.
	Answer introspect.Config

	// Logger receives events that are reported nowhere else: what a takeover waits for, and what it ends
	// (Warn). nil = discard.
	Logger *slog.Logger
}

// validated returns c with its defaults, and its connection settings.
func (c Config) validated() (Config, *pgx.ConnConfig, error) {
	c.Logger = background.Logger(c.Logger)
	if c.Table == "" {
		c.Table = DefaultTable
	}
	switch {
	case !c.Key.Valid():
		return c, nil, &driver.ConfigError{Field: "Key", Value: c.Key, Remedy: "name the election with a key, such as namespace.Pair(100, 1)"}
	case !pgtable.Valid(c.Table):
		return c, nil, &driver.ConfigError{Field: "Table", Value: fmt.Sprintf("%q", c.Table), Remedy: "use table or schema.table, of letters, digits and _, at most 63 each"}
	}
	cc, problem := pgdsn.Connection(c.DSN, c.ConnConfig)
	if problem != nil {
		return c, nil, &driver.ConfigError{Field: problem.Field, Value: problem.Value, Remedy: problem.Remedy}
	}
	return c, cc, nil
}
