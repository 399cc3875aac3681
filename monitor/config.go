package monitor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultMinInterval is the default of Config.MinInterval.
const DefaultMinInterval = 250 * time.Millisecond

// A Config says how to open a Monitor. The zero value of every field but DSN and
// ConnConfig, of which one is required, is a good default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string, as libpq and pgxpool take it
	// (PostgreSQL manual, section 34.1.1); pool settings in it are ignored, errors never
	// quote it. The locks of its database are shown.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, takes the place of DSN for what a string
	// cannot say: TLS, dialers, tracers. It is copied.
	ConnConfig *pgx.ConnConfig

	// Namespaces gives names to keys of which no process tells the name. nil = no names: then
	// a pair of int4 shows its numbers, a bigint only itself.
	Namespaces *namespace.Set

	// Authorize lets a request through by returning nil. The text of its error is
	// sent to the client in a 403. nil = LoopbackOnly.
	Authorize func(*http.Request, Action) error

	// Redact replaces an entity's id wherever a Snapshot would show it: it gets the
	// namespace and the id and returns what viewers see. A key whose id it changed
	// loses the number that is the id. The id of a hashed key is known if a process answers
	// it; its bigint is shown in Snapshots, and whoever can guess an id can compute it. With a Redact, labels
	// are not shown either. It is called by one goroutine at a time and must not block. nil = show ids.
	Redact func(namespace, id string) string

	// ClientAddr adds the network address of each session. false = it is not even selected.
	ClientAddr bool

	// NoQuestions leaves the processes unasked (package introspect). Without their answers
	// hashed keys have no names, waiters inside processes and deadlocks across them are not seen, and times
	// are those of the first look.
	NoQuestions bool

	// Record is how often to look when nobody does, so that Page can show the last hour, and
	// Verdicts that compare with the past are there when somebody comes. 0 = look only while somebody does; the
	// past is then what viewers saw.
	Record time.Duration

	// LongHold is from when on a lock that is held is worth a Verdict. Less than that
	// is, if somebody waits and it is ten times what is usual for the key. 0 = 5 minutes.
	LongHold time.Duration

	// Leases, a lease.Store, has Page show its leases. nil = none.
	Leases LeaseLister

	// HeldSince asks a locker of this process when the session pid took the lock tag;
	// false = not by this locker. PostgreSQL does not know. It is called by one
	// goroutine at a time and must not block. nil = nobody to ask.
	HeldSince func(pid uint32, tag namespace.Tag) (time.Time, bool)

	// MinInterval is the least time from the end of one query to the start of the
	// next. 0 = 250 ms.
	MinInterval time.Duration

	// Logger gets a line when the database stops answering (Warn) and answers again
	// (Info). nil = discard.
	Logger *slog.Logger
}

// A LeaseLister is what is asked of a lease.Store.
type LeaseLister interface {
	List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error]
}

// A ConfigError names a field of a Config, its value and the remedy.
type ConfigError struct {
	Field  string
	Value  any
	Remedy string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("monitor: %s is %v: %s", e.Field, e.Value, e.Remedy)
}

// withDefaults validates a config and fills its defaults.
func (c Config) withDefaults() (Config, error) {
	if c.MinInterval < 0 {
		return c, &ConfigError{"MinInterval", c.MinInterval, "use a positive duration, or 0 for the default of 250ms"}
	}
	if c.Record < 0 {
		return c, &ConfigError{"Record", c.Record, "use a positive duration, or 0 to look only while somebody does"}
	}
	if c.LongHold < 0 {
		return c, &ConfigError{"LongHold", c.LongHold, "use a positive duration, or 0 for the default of 5m"}
	}
	c.LongHold = cmp.Or(c.LongHold, incident.DefaultLimits().Long)
	c.MinInterval = cmp.Or(c.MinInterval, DefaultMinInterval)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Authorize == nil {
		c.Authorize = LoopbackOnly
	}
	return c, nil
}

// connConfig returns the connection settings of a config.
func (c Config) connConfig() (*pgx.ConnConfig, error) {
	cc, problem := pgdsn.Connection(c.DSN, c.ConnConfig)
	if problem != nil {
		return nil, &ConfigError{problem.Field, problem.Value, problem.Remedy}
	}
	// Of the startup parameters, this is one that PgBouncer lets through.
	cc.RuntimeParams["application_name"] = applicationName
	// Named prepared statements and a pooler that changes servers do not go together.
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	return cc, nil
}
