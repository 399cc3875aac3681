package postgres

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/lease"
)

// DefaultLockTimeout is the default of Config.LockTimeout.
const DefaultLockTimeout = time.Second

// A Config says where a Store keeps leases. One of Pool and DSN is required. The zero value of
// every other field is a good default.
type Config struct {
	// Pool provides connections to the primary, directly or through a pooler in any mode. The
	// caller owns the pool, and closes it after the Store's last use. The Store does not change
	// the pool's settings. If a transaction pooler does not support prepared statements, set
	// pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol.
	Pool *pgxpool.Pool

	// DSN is a PostgreSQL URL or keyword/value string, as libpq and pgxpool accept it. The Store
	// makes its own pool from it. Unless the DSN sets default_query_exec_mode, the Store
	// prepares no statements, so the connection may go through a transaction pooler.
	DSN string

	// LockTimeout bounds the wait for a row. An Acquire waits for the guarded writes of the
	// previous lease, and every operation waits for other transactions on the row. After that
	// time, the error is *lease.BusyError. 0 = DefaultLockTimeout; at least a millisecond.
	LockTimeout time.Duration
}

func (c Config) validated() (Config, error) {
	c.LockTimeout = cmp.Or(c.LockTimeout, DefaultLockTimeout)
	switch {
	case c.Pool == nil && c.DSN == "":
		return c, &lease.InvalidError{Field: "Config.DSN", Value: "empty", Remedy: "set it to the database's URL, such as postgres://localhost/shop, or set Pool"}
	case c.Pool != nil && c.DSN != "":
		return c, &lease.InvalidError{Field: "Config.DSN", Value: "set beside Pool", Remedy: "set one of the two"}
	case c.LockTimeout < time.Millisecond || c.LockTimeout > lease.MaxTTL:
		return c, &lease.InvalidError{Field: "Config.LockTimeout", Value: c.LockTimeout.String(), Remedy: fmt.Sprintf("use 1ms to %v", lease.MaxTTL)}
	}
	return c, nil
}
