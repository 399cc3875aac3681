// Package sqlstate names PostgreSQL's error codes (PostgreSQL manual, appendix A).
package sqlstate

import (
	"errors"
	"strings"
)

// The codes that somebody here acts on.
const (
	AdminShutdown        = "57P01" // pg_terminate_backend, too
	CannotConnectNow     = "57P03"
	CrashShutdown        = "57P02"
	Deadlock             = "40P01"
	DuplicateObject      = "42710" // a table's row type, too
	DuplicateStatement   = "42P05" // a prepared one: a pooler gave its session to another client
	DuplicateTable       = "42P07"
	FailedTransaction    = "25P02" // an earlier statement of the transaction was ended
	FeatureNotSupported  = "0A000" // a transaction that writes, on a standby, too
	IdleSessionTimeout   = "57P05"
	InvalidAuthorization = "28000"
	InvalidCatalog       = "3D000" // no such database
	InvalidPassword      = "28P01"
	InvalidSchema        = "3F000"
	InvalidText          = "22P02"
	LockNotAvailable     = "55P03"
	NoTransaction        = "25P01"
	OutOfMemory          = "53200" // of shared memory, too: the lock table is full
	Privilege            = "42501"
	ProgramLimitExceeded = "54000" // the queue of notifications is full, too
	ProtocolViolation    = "08P01" // PgBouncer: a transaction in statement mode, too
	QueryCanceled        = "57014"
	ReadOnly             = "25006"
	TransactionTimeout   = "25P04"
	UndefinedColumn      = "42703"
	UndefinedFunction    = "42883"
	UndefinedStatement   = "26000" // a prepared one: see DuplicateStatement
	UndefinedTable       = "42P01"
	UniqueViolation      = "23505"
	UnknownCompletion    = "40003"
)

// Classes of codes, which begin with them.
const (
	ClassConnection   = "08"
	ClassRollback     = "40" // serialization failure, deadlock
	ClassResources    = "53" // too many connections, disk full, out of memory
	ClassIntervention = "57" // a shutdown, a crash, a session that was ended
	ClassInternal     = "XX" // a torn read of a file of the server's, too
)

// Of returns the code of an error that the server sent, through whichever driver; else "".
func Of(err error) string {
	if err == nil {
		return ""
	}
	var e interface{ SQLState() string } // of pgx and of lib/pq
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// Undone reports whether the server has undone what failed with this code, and another try may succeed.
// "" and other codes are not of that kind: the outcome is unknown, or another try fails too.
func Undone(code string) bool {
	switch code {
	case LockNotAvailable, QueryCanceled, CannotConnectNow:
		return true
	case UnknownCompletion:
		return false
	}
	return strings.HasPrefix(code, ClassRollback) || strings.HasPrefix(code, ClassResources)
}

// RefusesTransactions reports whether PgBouncer in statement mode refused a transaction. The code of this error is that of
// any protocol violation.
func RefusesTransactions(err error) bool {
	return Of(err) == ProtocolViolation && strings.Contains(err.Error(), "statement pooling mode")
}
