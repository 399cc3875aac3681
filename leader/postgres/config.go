package postgres

import (
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
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultTable holds the terms of all elections of a database.
const DefaultTable = "public.pglatch_election"

// The limits of a lease's duration.
const (
	MinTTL = 500 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// A ConnectFunc makes a connection with the settings that it is given, which it
// must keep: they make the connection fit for a lock session.
type ConnectFunc = func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)

// A Config says how to reach an election. Key is required, and one of DSN and
// ConnConfig; the zero value of every other field is a good default.
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

	// Key names the election: whoever holds the session lock on it leads or is about
	// to. It is a key of a namespace or a raw one.
	Key namespace.Key

	// Table counts the terms: "table" of schema public, or "schema.table", taken as
	// written. "" = DefaultTable.
	Table string

	// CreateTable makes the table if it is not there, with the role of the
	// connection. false = an error that says how to make it.
	CreateTable bool

	// AwaitTable makes a missing table an error that passes, when somebody makes it: the node waits for that. false = the
	// error matches leader.ErrPermanent.
	AwaitTable bool

	// NoTerms does without the table: terms are driver.Term{}, and a leader does not
	// know whether its predecessor ended in good order. Guards work all the same.
	NoTerms bool

	// GuardTimeout is how long a takeover waits for the guarded transactions of earlier
	// terms before it ends their sessions with pg_terminate_backend: they are rolled
	// back. 0 = the duration of the lease; negative = it waits for as long as they last.
	// The candidate's role must have the privileges of theirs or of pg_signal_backend;
	// where it has not, the takeover goes on waiting and says who may end what.
	GuardTimeout time.Duration

	// Answer says what the node tells those who ask how it stands, and whether it resigns when
	// it is asked to; see package introspect. The zero value answers, on one connection more,
	// which all elections and Lockers of a process in one database share, and does nothing else.
	Answer introspect.Config

	// Logger gets what is reported nowhere else: what a takeover waits for, and
	// what it ends (Warn). nil = discard.
	Logger *slog.Logger
}

// validated returns a config with its defaults filled, and its connection settings.
func (c Config) validated() (Config, *pgx.ConnConfig, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// checkCandidate validates the arguments of an attempt.
func checkCandidate(identity string, ttl time.Duration) error {
	switch {
	case identity == "" || !utf8.ValidString(identity) || strings.ContainsRune(identity, 0):
		return &driver.ConfigError{Field: "Identity", Value: fmt.Sprintf("%q", identity), Remedy: "use text that no other candidate has"}
	case ttl < MinTTL || ttl > MaxTTL:
		return &driver.ConfigError{Field: "LeaseDuration", Value: ttl, Remedy: "use 500ms to 24h"}
	}
	return nil
}
