package monitor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// DefaultMinInterval is the default of Config.MinInterval.
const DefaultMinInterval = 250 * time.Millisecond

// A Config describes a Monitor. DSN or ConnConfig is required. For every other field the zero value is a good
// default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string, in the syntax of libpq and pgxpool (PostgreSQL manual,
	// section 34.1.1). Its database is the one whose locks are shown. Pool settings in it are ignored; errors
	// never quote it.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, replaces DSN for settings that a string cannot express: TLS,
	// dialers, tracers. The Monitor copies it.
	ConnConfig *pgx.ConnConfig

	// Name is the name of the database in metrics, in a Site, and on its page: 1 to 40 lower-case letters, digits,
	// '_', '-' and '.', beginning with a letter or digit. "" = its address in metrics, such as "db-1:5432/shop".
	Name string

	// Namespaces gives names to keys that no process names. nil = no names: a pair of int4 is then shown by
	// its numbers, and a bigint by itself.
	Namespaces *namespace.Set

	// Authorize admits a request by returning nil. Otherwise the client gets a 403 with the text of the error.
	// nil = LoopbackOnly.
	Authorize func(*http.Request, Action) error

	// Actions serves the paths below actions/ of Page, for programs that let people act from the page. "pglatch
	// serve monitor --actions" is such a program. Page then loads actions/actions.js and actions/actions.css.
	// Authorize admits its requests with ActionView; Actions itself must check which user may do what. nil =
	// the page changes nothing.
	Actions http.Handler

	// Redact replaces an entity's id wherever a Snapshot would show it. It receives the namespace and the id
	// and returns the text that viewers see. If it changes the id of a key and the id is a number in the key,
	// that number is hidden too. The id of a hashed key is known only if a process answers with it. The bigint
	// of a hashed key is shown in Snapshots, and anyone who can guess an id can compute it. With a Redact,
	// labels are hidden as well. Redact is called by one goroutine at a time and must not block. nil = show
	// ids.
	Redact func(namespace, id string) string

	// ClientAddr adds the network address of each session. false = the query does not even select it.
	ClientAddr bool

	// NoQuestions stops the monitor from asking the processes (package introspect). Without their answers
	// hashed keys have no names. Waiters inside processes and deadlocks across processes are then invisible,
	// and times count from the first query that saw the lock.
	NoQuestions bool

	// Record is the interval of queries while there are no viewers. It lets Page show the last hour, and makes
	// Verdicts that compare with the past available at once. 0 = query only while there are viewers; the
	// recorded past is then only what they saw.
	Record time.Duration

	// LongHold is how long a lock must be held to get a Verdict. A shorter hold also gets one if a request
	// waits and the hold is ten times as long as usual for the key. 0 = 5 minutes.
	LongHold time.Duration

	// Leases is a lease.Store whose leases Page shows. Viewers share its answers, so List must not depend on values of
	// its context. nil = none.
	Leases LeaseLister

	// Fleet reads what programs keep in tables in addition to their locks: groups of shards, ticks, mailboxes and
	// leases. Page shows them, and they give names to locks whose keys are hashes. Fleet is called at most every 5 s,
	// by one goroutine at a time, and delays no query. "pglatch serve monitor" sets it. nil = none.
	Fleet func(ctx context.Context) (fleet.Fleet, error)

	// MinInterval is the minimum time from the end of one query to the start of
	// the next. 0 = 250 ms.
	MinInterval time.Duration

	// Logger receives a line when the database stops answering (Warn) and answers again (Info). nil = discard.
	Logger *slog.Logger
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,39}$`)

// A LeaseLister is the part of a lease.Store that Page uses.
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
	if c.Name != "" && !validName.MatchString(c.Name) {
		return c, &ConfigError{"Name", strconv.Quote(c.Name), "use 1 to 40 lower-case letters, digits, '_', '-' and '.', beginning with a letter or digit"}
	}
	c.LongHold = cmp.Or(c.LongHold, incident.DefaultLimits().Long)
	c.MinInterval = cmp.Or(c.MinInterval, DefaultMinInterval)
	c.Logger = background.Logger(c.Logger)
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
	// PgBouncer accepts this startup parameter.
	cc.RuntimeParams["application_name"] = applicationName
	// Named prepared statements fail with a pooler that changes servers.
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	return cc, nil
}
