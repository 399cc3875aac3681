package migratelock

import (
	"cmp"
	"errors"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// ErrUnused means that the lock was released because the driver was not used within Config.Unused after
// the grant.
var ErrUnused = errors.New("migratelock: the lock was given back unused")

// A Config sets how to lock migrations.
type Config struct {
	// Locker takes the locks, on the database that is being migrated. The caller closes it after the
	// Driver. Required.
	Locker *advisory.Locker

	// Key is the key that the replicas lock; use one for each table of migrations. It must be a key of a
	// namespace: if it were the number that golang-migrate locks, the two locks would block each other.
	// Required.
	Key namespace.Key

	// Open creates the PostgreSQL driver to wrap, as pgx.WithInstance and postgres.WithInstance do. New
	// calls it once, under the lock. Required.
	Open func() (database.Driver, error)

	// Timeout bounds a wait for the lock. 0 = 10 s; advisory.NoTimeout = until Close. If Timeout is longer
	// than the LockTimeout of the migrate.Migrate, which is 15 s by default, migrate.Migrate gives up
	// first.
	Timeout time.Duration

	// Unused is how long a lock may be held before a call of Version, SetVersion, Run, Drop or Unlock.
	// migrate.Migrate calls one of these at once. After Unused the lock is released: its caller has stopped
	// waiting. 0 = 5 s.
	Unused time.Duration
}

// withDefaults returns the Config with its defaults, or a *advisory.ConfigError.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Locker == nil:
		return c, &advisory.ConfigError{Field: "Locker", Value: c.Locker, Remedy: "open one with advisory.Open"}
	case c.Key.Namespace() == namespace.Namespace{}:
		return c, &advisory.ConfigError{Field: "Key", Value: c.Key, Remedy: "use a key of a namespace, such as namespace.Must(1, \"migrations\").ID(1)"}
	case c.Open == nil:
		return c, &advisory.ConfigError{Field: "Open", Value: nil, Remedy: "use a function that returns the driver, as pgx.WithInstance does"}
	case c.Timeout < 0:
		return c, &advisory.ConfigError{Field: "Timeout", Value: c.Timeout, Remedy: "use 0 for 10 seconds, or advisory.NoTimeout"}
	case c.Unused < 0:
		return c, &advisory.ConfigError{Field: "Unused", Value: c.Unused, Remedy: "use 0 for 5 seconds"}
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Unused = cmp.Or(c.Unused, 5*time.Second)
	return c, nil
}
