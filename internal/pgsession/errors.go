package pgsession

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// inDoubt reports whether a lock may be held although its statement failed with this error.
func inDoubt(err error) bool {
	switch sqlstate.Of(err) {
	case sqlstate.QueryCanceled, sqlstate.LockNotAvailable, sqlstate.Deadlock:
		return true
	}
	return false
}

// typed returns a server error in the form that callers know.
func typed(err error) error {
	if sqlstate.Of(err) == sqlstate.OutOfMemory {
		return lockTableFull(err)
	}
	return err
}

func lockTableFull(err error) error {
	return fmt.Errorf("%w: the server has no room for another lock of any session; "+
		"it has max_locks_per_transaction × (max_connections + max_prepared_transactions): %w", session.ErrLockTableFull, err)
}
