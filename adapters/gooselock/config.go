package gooselock

import (
	"cmp"
	"errors"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

var (
	// ErrNotLocked means that Unlock or SessionUnlock was called without a lock of this locker.
	ErrNotLocked = errors.New("gooselock: not locked")
	// ErrDriver means that the connection does not use pgx's database/sql driver, so a
	// SessionLocker could not close it. Use New and goose.WithLocker.
	ErrDriver = errors.New("gooselock: the connection is not of the database/sql driver of pgx: use New with goose.WithLocker")
)

// A Config sets how to lock migrations.
type Config struct {
	// Locker takes the locks, on the database that is being migrated. The caller closes it after
	// the last migration. Required.
	Locker *advisory.Locker

	// Key is the key to lock. The zero Key = interop.Goose(), which goose's own lockers lock.
	Key namespace.Key

	// Timeout bounds a wait for the lock. 0 = 5 min, as in goose's own lock; advisory.NoTimeout =
	// until the context of the call to goose ends.
	Timeout time.Duration
}

// withDefaults returns the Config with its defaults, or a *advisory.ConfigError.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Locker == nil:
		return c, &advisory.ConfigError{Field: "Locker", Value: c.Locker, Remedy: "open one with advisory.Open"}
	case c.Timeout < 0:
		return c, &advisory.ConfigError{Field: "Timeout", Value: c.Timeout, Remedy: "use 0 for 5 minutes, or advisory.NoTimeout"}
	}
	if !c.Key.Valid() {
		c.Key = interop.Goose()
	}
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	return c, nil
}
