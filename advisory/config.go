package advisory

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
)

// NoTimeout as a wait means until the context ends.
const NoTimeout = time.Duration(math.MaxInt64)

// The defaults of a Config that are not its sessions'.
const (
	defaultTimeout        = 15 * time.Second
	defaultMaxConns       = 10
	defaultHandOverBudget = 10 * time.Millisecond
)

// maxLocksPerConn is as many locks as PostgreSQL walks in a tenth of a second, at the end of
// each transaction of their session.
const maxLocksPerConn = 1 << 17

// A Config says how to open a Locker. The zero value of every field but DSN and
// ConnConfig, of which one is required, is a good default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string, as libpq and pgxpool take it
	// (PostgreSQL manual, section 34.1.1). Pool settings in it (pool_max_conns and the
	// like) are for other pools and are ignored. Errors never quote it.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, takes the place of DSN for what a string
	// cannot say: TLS, dialers, tracers. It is copied.
	ConnConfig *pgx.ConnConfig

	// BeforeConnect may change the copy of the settings before each connection is
	// made, for passwords that rotate. An error of it is an ErrUnavailable whose text
	// does not quote it, because it can hold secrets; errors.Is and errors.As find it. nil = nothing.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// MaxConns is the size of the Locker's own connection pool, which bounds the locks that
	// can be held at one time, MaxConns × LocksPerConn, and the keys that can be waited for at
	// the server, one on each connection. Connections are made when they are needed, and
	// given back when nothing is on them. 0 = 10; at least 2 if LocksPerConn is more than 1,
	// because a connection that waits takes no new locks; at most 32767.
	MaxConns int

	// LocksPerConn is how many locks one connection carries at most; see the package's
	// documentation. 0 = 1: each lock has a connection of its own, which can be ended
	// without harm to other locks. With more, all locks of a connection are lost when it
	// ends, also when a person ends one session with pg_terminate_backend; in return,
	// requests that come together share statements, and thousands of locks need a few
	// connections. A connection is made when the others are full, so that a large number
	// makes large batches, and a small one spreads the work over more server processes.
	//
	// Use some hundreds to some thousands: PostgreSQL walks all locks of a session at the end of
	// each transaction (LockReleaseAll), which takes some 0.1 ms with 1,000 locks, 7 ms with
	// 10,000 and 0.1 s with 131,072, the most that is allowed. From 256 locks on a busy
	// connection pays that once in a second, and not with each statement; a ping, a shared
	// lock and the rest after a burst still pay it. If the connection ends, the last of 10,000
	// holders learns it 20 ms after the first. The keys of one AcquireAll stay on one
	// connection, also beyond this number, except for those that it shares with other readers of the process.
	LocksPerConn int

	// MaxLocks bounds the locks that a Locker with more than one lock per connection holds
	// or asks for at one time: a process that fills the server's lock table stops everybody.
	// Beyond it requests fail with an ErrLockTableFull. 0 = 5 % of the locks that the server
	// has room for, max_locks_per_transaction × (max_connections +
	// max_prepared_transactions), but at least 100. With one lock per connection it is not
	// looked at: there are never more than MaxConns.
	MaxLocks int

	// Wait bounds a request for a lock, with all that it needs: a connection of the
	// pool, connecting to however many hosts, the checks of a new connection. When it is
	// over, the server is asked who holds the lock; one that is silent delays the error by
	// half a second at most. 0 = 15 s; NoTimeout = until the context ends.
	Wait time.Duration

	// SessionTTL is the server's idle_session_timeout on lock connections: a lock
	// whose holder is stopped or cut off is free after it. A lock's context ends
	// before. Pings go out every third of it. Less than some seconds is for quiet machines: on
	// busy processors an answer to a ping can take hundreds of milliseconds. 0 = 15 s; 500 ms to 24 h.
	SessionTTL time.Duration

	// LossDrain is the time that work has to stop when the server is not heard of any
	// more: a lock's context ends so much earlier than it otherwise does, which is at
	// least a tenth of SessionTTL before the server can free the lock. It is for work that
	// cannot look at its context before each write, such as another program's. A session
	// that the server itself ends is not covered: its locks are free at once. 0 = none; at
	// most two fifths of SessionTTL, and less below 1.5 s (33 ms at 500 ms, 316 ms at 1 s): pings
	// go out every third, and each has 250 ms at least to be answered. On busy processors an answer can take that long.
	LossDrain time.Duration

	// HandOverBudget is how long a lock may pass between waiters of this process,
	// without a round trip, before other processes get their turn. 0 = 10 ms;
	// negative = never: each release asks the server.
	HandOverBudget time.Duration

	// ApplicationName is what other processes and the monitor see of a holder, in
	// pg_stat_activity. PostgreSQL keeps its first 63 bytes. "" = the connection
	// settings' own, else the program and the host, as "billing@web-3"; if that is longer
	// than 63 bytes it loses its middle.
	ApplicationName string

	// Answer says what this process tells those who ask what it holds and waits for, and what
	// it does when it is asked to; see package introspect. The zero value answers, on one
	// connection more, which lasts while locks are held or waited for, and does nothing else.
	Answer introspect.Config

	// BreakDeadlocks ends deadlocks through several processes: a caller that holds locks and
	// has waited for another for a second asks all processes what they wait for, each second, and if
	// its wait is the youngest of a cycle it gets an ErrDeadlock in place of a *TimeoutError. All processes
	// must answer (see Answer), and each ends its own waits only if it has this set. Deadlocks inside
	// one process are found at once in any case. Any role that may connect can answer, and so could
	// have a wait of a caller that holds locks end: as it could by taking the lock.
	BreakDeadlocks bool

	// Logger gets what nobody is told otherwise: lost locks (Warn), skipped
	// re-entrance (Info), a tracer that panicked (Error). nil = discard.
	Logger *slog.Logger

	// Tracer has functions that are told what happens to locks. The zero value has none.
	Tracer Tracer
}

// A ConfigError names a field of a Config or Options, its value and the remedy.
type ConfigError struct {
	Field  string
	Value  any
	Remedy string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("advisory: %s is %v: %s", e.Field, e.Value, e.Remedy)
}

// withDefaults validates a config and fills its defaults.
func (c Config) withDefaults() (Config, error) {
	c.MaxConns = cmp.Or(c.MaxConns, defaultMaxConns)
	c.LocksPerConn = cmp.Or(c.LocksPerConn, 1)
	c.Wait = cmp.Or(c.Wait, defaultTimeout)
	c.SessionTTL = cmp.Or(c.SessionTTL, session.DefaultTTL)
	c.HandOverBudget = cmp.Or(c.HandOverBudget, defaultHandOverBudget)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case c.MaxConns < 0 || c.MaxConns > math.MaxInt16:
		return c, &ConfigError{"MaxConns", c.MaxConns, "use 1 to 32767, or 0 for the default of 10"}
	case c.LocksPerConn < 0 || c.LocksPerConn > maxLocksPerConn:
		return c, &ConfigError{"LocksPerConn", c.LocksPerConn, fmt.Sprintf("use 1 to %d locks, or 0 for a connection of its own for each", maxLocksPerConn)}
	case c.LocksPerConn > 1 && c.MaxConns < 2:
		return c, &ConfigError{"MaxConns", c.MaxConns, "use at least 2 with LocksPerConn above 1, because a connection that waits takes no new locks, or 0 for the default of 10"}
	case c.MaxLocks < 0:
		return c, &ConfigError{"MaxLocks", c.MaxLocks, "use a positive number, or 0 for a twentieth of the server's lock table"}
	case c.Wait < 0:
		return c, &ConfigError{"Wait", c.Wait, "use a positive duration, 0 for the default of 15s, or NoTimeout"}
	case strings.ContainsRune(c.ApplicationName, 0):
		return c, &ConfigError{"ApplicationName", strconv.Quote(c.ApplicationName), "leave out the zero byte, which PostgreSQL does not take"}
	case c.SessionTTL < session.MinTTL || c.SessionTTL > session.MaxTTL:
		return c, &ConfigError{"SessionTTL", c.SessionTTL, "use 500ms to 24h, or 0 for the default of 15s"}
	case c.BreakDeadlocks && c.Answer.Off:
		return c, &ConfigError{"BreakDeadlocks", true, "leave Answer.Off false: processes ask each other what they wait for"}
	case c.LossDrain < 0 || c.LossDrain > session.MaxLossDrain(c.SessionTTL):
		return c, &ConfigError{"LossDrain", c.LossDrain, fmt.Sprintf("use at most %v with a SessionTTL of %v, so that pings have time to be answered, a longer SessionTTL, or 0 for none", session.MaxLossDrain(c.SessionTTL), c.SessionTTL)}
	}
	return c, nil
}

// connConfig returns the connection settings of a valid config.
func (c Config) connConfig() (*pgx.ConnConfig, error) {
	cc, problem := pgdsn.Connection(c.DSN, c.ConnConfig)
	if problem != nil {
		return nil, &ConfigError{problem.Field, problem.Value, problem.Remedy}
	}
	if name := cc.RuntimeParams["application_name"]; strings.ContainsRune(name, 0) {
		return nil, &ConfigError{"application_name", strconv.Quote(name), "leave out the zero byte, which PostgreSQL does not take"}
	}
	return cc, nil
}
