package pgsession

import (
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/internal/session"
)

// SQLSTATEs, PostgreSQL manual, appendix A.
const (
	codeQueryCanceled    = "57014"
	codeLockNotAvailable = "55P03"
	codeDeadlock         = "40P01"
	codeOutOfMemory      = "53200" // of shared memory: the lock table is full

	codeInvalidPassword      = "28P01"
	codeInvalidAuthorization = "28000"
	codeInvalidCatalog       = "3D000" // no such database
	codePrivilege            = "42501"
)

var errNotHeld = errors.New("the server no longer held the lock for this session")

// sqlState returns the SQLSTATE of an error that the server sent, else "".
func sqlState(err error) string {
	if err == nil {
		return ""
	}
	var e interface{ SQLState() string } // of pgx and of lib/pq
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// inDoubt reports whether a lock may be held although its statement failed with
// this error.
func inDoubt(err error) bool {
	switch sqlState(err) {
	case codeQueryCanceled, codeLockNotAvailable, codeDeadlock:
		return true
	}
	return false
}

// typed is an error of the server's, as callers know it.
func typed(err error) error {
	if sqlState(err) == codeOutOfMemory {
		return lockTableFull(err)
	}
	return err
}

func lockTableFull(err error) error {
	return fmt.Errorf("%w: the server has no room for another lock of any session; "+
		"it has max_locks_per_transaction × (max_connections + max_prepared_transactions): %w", session.ErrLockTableFull, err)
}
