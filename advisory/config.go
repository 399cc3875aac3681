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
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
)

// NoTimeout is a wait without a limit: it ends only with its context.
const NoTimeout = time.Duration(math.MaxInt64)

// The defaults of Config, except those of its sessions.
const (
	defaultTimeout        = 15 * time.Second
	defaultMaxConns       = 10
	defaultHandOverBudget = 10 * time.Millisecond
)

// maxLocksPerConn is the number of locks that PostgreSQL walks in a tenth of a second. It does so
// at the end of each transaction of their session.
const maxLocksPerConn = 1 << 17

// A Config says how to open a Locker. DSN or ConnConfig is required. The zero value of every other
// field is a good default.
type Config struct {
	// DSN is a PostgreSQL URL or keyword/value string, in the syntax of libpq and pgxpool
	// (PostgreSQL manual, section 34.1.1). Pool settings in it, such as pool_max_conns, are
	// ignored. Errors never quote it.
	DSN string

	// ConnConfig, made by pgx.ParseConfig, replaces DSN for settings that a string cannot express:
	// TLS, dialers, tracers. The Locker copies it.
	ConnConfig *pgx.ConnConfig

	// BeforeConnect may change the Locker's copy of the connection settings before each connection
	// is made, for example to rotate passwords. If it fails, the caller gets an ErrUnavailable. Its
	// text does not quote the error of BeforeConnect, which can hold secrets, but errors.Is and
	// errors.As find that error. nil = no changes.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// MaxConns is the size of the Locker's own connection pool. So MaxConns × LocksPerConn locks
	// can be held at a time (more if AcquireAll takes several keys on one connection). Each
	// connection can wait for one key at a time. The Locker opens connections on demand, and
	// returns a connection to the pool when no lock and no wait uses it. 0 = 10; at most 32767.
	// If LocksPerConn is more than 1 the minimum is 2, because a connection that waits takes no
	// new locks.
	MaxConns int

	// LocksPerConn is the maximum number of locks on one connection. See the package's
	// documentation. 0 = 1: each lock has a connection of its own, and the end of that connection
	// affects no other lock. With more, all locks of a connection are lost when it ends, for
	// example when somebody runs pg_terminate_backend on one session. In return, requests that
	// arrive together share statements, and thousands of locks need only a few connections. The
	// Locker opens a connection when the others are full. So a large number makes large batches,
	// and a small number spreads the work over more server processes.
	//
	// Use a few hundred to a few thousand. PostgreSQL walks all locks of a session at the end of
	// each transaction (LockReleaseAll). That takes about 0.1 ms with 1,000 locks, 7 ms with
	// 10,000 and 0.1 s with 131,072, the maximum. With 256 locks or more, a busy connection spends
	// that time once a second instead of after each statement. But it still spends that time after
	// each ping, after each request for a shared lock, and when it becomes idle after a burst. If
	// the connection ends, the last of 10,000 holders learns of it 20 ms after the first. All keys
	// of one AcquireAll call go to one connection, even if there are more of them than
	// LocksPerConn. The exceptions are keys that the call had to wait for, the keys after those,
	// and keys that it shares with other readers of the process.
	LocksPerConn int

	// MaxLocks bounds the locks that a Locker with more than one lock per connection holds or
	// requests at one time. The limit exists because a process that fills the server's lock table
	// stops all other work on the server. Beyond the limit, requests fail with an ErrLockTableFull.
	// 0 = 5 % of the server's lock table, but at least 100. The lock table has room for
	// max_locks_per_transaction × (max_connections + max_prepared_transactions) locks. With one
	// lock per connection MaxLocks is ignored, because MaxConns bounds the locks already (except
	// the keys of AcquireAll).
	MaxLocks int

	// Wait is the time limit of a request for a lock. It covers everything: getting a connection
	// from the pool, the wait itself, attempts to connect to any number of hosts, and the checks
	// of a new connection. When the time is over, the Locker queries the server for the holder.
	// A silent server delays the error by at most half a second. 0 = 15 s; NoTimeout = until the
	// context ends.
	Wait time.Duration

	// SessionTTL is the server's idle_session_timeout on lock connections. If a lock's holder is
	// stopped or cut off, the lock becomes free after this time. The lock's context ends before
	// that. Pings go out every third of SessionTTL. Use less than a few seconds only on quiet
	// machines: on busy processors an answer to a ping can take hundreds of milliseconds. 0 = 15 s;
	// 500 ms to 24 h.
	SessionTTL time.Duration

	// LossDrain is the time that work has to stop if the server falls silent. Without it, a lock's
	// context ends at least a tenth of SessionTTL before the server can free the lock. With it,
	// the context ends earlier by LossDrain. Set it for work that cannot check its context before
	// each write, such as the work of another program. LossDrain does not help if the server
	// itself ends the session: then the locks are free at once. 0 = none; at most two fifths of
	// SessionTTL, and less for a SessionTTL below 1.5 s (33 ms at 500 ms, 316 ms at 1 s). The
	// maximum exists because pings go out every third of SessionTTL, and each has at least 250 ms
	// to be answered. On busy processors an answer can take that long.
	LossDrain time.Duration

	// HandOverBudget is how long waiters of this process may hand a lock to each other without a
	// round trip. After that, waiters of other processes can get it. 0 = 10 ms; negative =
	// never: each release asks the server.
	HandOverBudget time.Duration

	// ApplicationName identifies a holder to other processes and to the monitor, in
	// pg_stat_activity. PostgreSQL keeps its first 63 bytes. "" = the name in the connection
	// settings; if there is none, the program and the host, such as "billing@web-3". If program
	// and host are longer than 63 bytes, the middle is left out.
	ApplicationName string

	// Answer sets what this process tells other processes about the locks that it holds and waits
	// for, and which of their requests it accepts. See package introspect. The zero value answers
	// questions, but refuses requests. Answers use one more connection, which stays open while
	// locks are held or waited for.
	Answer introspect.Config

	// BreakDeadlocks ends deadlocks that span several processes. When a caller that holds locks has
	// waited a second for another lock, the Locker begins to ask all processes once a second what
	// they wait for. If the caller's wait is the youngest of a cycle, the caller gets an
	// ErrDeadlock instead of a later *TimeoutError. All processes must answer (see Answer), and
	// each ends its own waits only if it has BreakDeadlocks set. Deadlocks inside one process are
	// always detected at once. Any role that may connect can send a false answer, and so end a wait
	// of a caller that holds locks. This gives the role no new power, because it could also take
	// the lock itself.
	BreakDeadlocks bool

	// Logger receives events that could otherwise go unnoticed: lost locks (Warn), skipped
	// re-entrance (Info), a tracer that panicked (Error). nil = discard.
	Logger *slog.Logger

	// Tracer has functions that are called when something happens to a lock. The zero value has
	// none.
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
	case !utf8.ValidString(c.ApplicationName):
		return c, &ConfigError{"ApplicationName", strconv.Quote(c.ApplicationName), "use valid UTF-8"}
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
