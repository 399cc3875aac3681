package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/introspect"
	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultTable counts the terms of all shards of a database. Beside it are two tables whose names go on with _member and
// _order.
const DefaultTable = "public.pglatch_shard"

// A ConnectFunc makes a connection with the settings that it is given, which it
// must keep: they make the connection fit for a lock session.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// A Config says how to reach a group of shards. Namespace is required, and one of DSN and ConnConfig; the zero
// value of every other field is a good default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string. It leads to the primary, not
	// through a pool in transaction mode.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, takes the place of DSN for what a string
	// cannot say: TLS, dialers, tracers. It is copied.
	ConnConfig *pgx.ConnConfig

	// BeforeConnect may change the copy of the settings before each connection is
	// made, for passwords that rotate. nil = nothing.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Connect makes the connections, for tests and custom drivers. nil =
	// pgx.ConnectConfig.
	Connect ConnectFunc

	// Namespace is the group: the shard "7" of it is the session lock on Namespace.Text("7"). Nothing else
	// should take locks in it. All nodes have the same.
	Namespace namespace.Namespace

	// Table counts the terms: "table" of schema public, or "schema.table", taken as
	// written, of 56 bytes at most. "" = DefaultTable.
	Table string

	// CreateTable makes the tables if they are not there, with the role of the
	// connection. false = an error that says how to make them.
	CreateTable bool

	// MaxLocks is how many locks the server may have, of whatever kind and whoever has them, for a claim to take
	// more: the lock table is one for all, and when it is full no session can do anything. 0 = three quarters of
	// max_locks_per_transaction × (max_connections + max_prepared_transactions).
	MaxLocks int64

	// Answer says what the node tells those who ask what it owns; see package introspect. The zero value answers, on one
	// connection more, which all shards, elections and Lockers of a process in one database share.
	Answer introspect.Config

	// GuardTimeout is how long a claim waits for the guarded transactions of earlier terms of its shard before it ends their sessions
	// with pg_terminate_backend: they are rolled back. 0 = the duration of the lease; negative = it waits for as long as they last.
	// The role of the connection must have the privileges of theirs or of pg_signal_backend;
	// where it has not, the claim goes on waiting and says who may end what.
	GuardTimeout time.Duration

	// Logger gets what is reported nowhere else: shards that cannot be claimed, and sessions that are ended for them (Warn). nil = discard.
	Logger *slog.Logger
}

// validated returns a config with its defaults filled, and its connection settings.
func (c Config) validated() (Config, *pgx.ConnConfig, error) {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Table = cmp.Or(c.Table, DefaultTable)
	_, name, _ := strings.Cut("."+c.Table, ".")
	switch {
	case c.Namespace.Number() == 0:
		return c, nil, wrong("Namespace", "missing", `name the group with a namespace of its own, such as namespace.Must(7, "tenant")`)
	case !pgtable.Valid(c.Table) || len(name[strings.IndexByte(name, '.')+1:]) > 63-len(memberSuffix):
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

// checkMember validates the arguments of Open.
func checkMember(identity string, ttl time.Duration) error {
	switch {
	case identity == "" || !utf8.ValidString(identity) || strings.ContainsRune(identity, 0):
		return wrong("Identity", fmt.Sprintf("%q", identity), "use text that no other node has")
	case ttl < leaderdriver.MinLeaseDuration || ttl > leaderdriver.MaxLeaseDuration:
		return wrong("LeaseDuration", ttl, "use 500ms to 24h")
	}
	return nil
}

func wrong(field string, value any, remedy string) error {
	return &leaderdriver.ConfigError{Field: field, Value: value, Remedy: remedy}
}
