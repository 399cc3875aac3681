package postgres

import (
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/leader/driver"
)

// The errors of connections that an election cannot use.
var (
	// ErrPooler means that the connection goes through a transaction pooler, where session locks leak.
	// Connect directly or through a pool in session mode.
	ErrPooler = session.ErrPooler
	// ErrStandby means that the server is a standby, which has its own lock space.
	ErrStandby = session.ErrStandby
)

// ErrNoTransaction means that the argument of Guard or GuardSQL is not in a transaction, so the guard ended
// with its own statement. Nothing is guarded. The error does not depend on the term.
var ErrNoTransaction = session.ErrNoTransaction

// ErrReadOnly means that a guard that locks a row, as guards of shards do, got a read-only transaction.
// The transaction is aborted. The error does not depend on the term. Guards of elections lock no row.
var ErrReadOnly = txguard.ErrReadOnly

// A PendingError describes what a takeover waits for. It matches driver.ErrPending and the cause of the context
// that ended the attempt. The next attempt continues the takeover. Fields that the role may not see are zero.
type PendingError struct {
	Election string
	// Guarded reports that a guarded transaction of an earlier term is in flight. Otherwise the session of an
	// earlier leader is about to end.
	Guarded bool
	// PID is the server process of the blocking session. It is 0 if the last check found none, or if
	// the transaction is prepared.
	PID             uint32
	ApplicationName string    // of that session
	Role            string    // of that session, or of the role that prepared the transaction
	Since           time.Time // start of the guarded transaction
	Prepared        string    // gid of a prepared transaction; COMMIT PREPARED or ROLLBACK PREPARED ends it
	// Needs is the privilege that the candidate's role lacks for ending the guarded transaction's session after
	// Config.GuardTimeout. It is "" if none is missing, or if the candidate is not going to end the session.
	Needs  string
	Waited time.Duration
	Cause  error
}

func (e *PendingError) Error() string {
	what := "the session of an earlier leader"
	if e.Guarded {
		what = "a guarded transaction"
	}
	return fmt.Sprintf("leader: takeover of %s waits for %s%s: %v", e.Election, what, e.blocker(), e.Cause)
}

// Is reports whether target is driver.ErrPending.
func (e *PendingError) Is(target error) bool { return target == driver.ErrPending }

// Unwrap returns the cause of the context.
func (e *PendingError) Unwrap() error { return e.Cause }

// A NotLeaderError reports that a guard refused a transaction. The transaction cannot write any more.
// It matches leader.ErrNotLeader. If the context ended with its term, it also matches the context's
// cause.
type NotLeaderError struct {
	Election string      // "" if the context is not a leader's
	Term     driver.Term // of the context
	Cause    error
}

func (e *NotLeaderError) Error() string {
	if e.Election == "" {
		return fmt.Sprintf("leader: not the leader: %v", e.Cause)
	}
	return fmt.Sprintf("leader: not the leader of %s in term %v: %v", e.Election, e.Term, e.Cause)
}

// Is reports whether target is leader.ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == driver.ErrNotLeader }

// Unwrap returns the cause.
func (e *NotLeaderError) Unwrap() error { return e.Cause }

// A TxEndedError reports that the function that InTx ran has ended the transaction. It says what
// was committed.
type TxEndedError = txguard.TxEndedError

// A RowError reports that somebody has changed or deleted the row of an election while its leader leads. The
// leader's guards still work. But the terms of later leaders may not be greater than its own. It matches
// leader.ErrPermanent.
type RowError struct {
	Election, Table string
	Term            driver.Term // of the leader
	Found           driver.Term // of the row; zero = the row is gone
}

func (e *RowError) Error() string {
	found := "has been changed: it has term " + e.Found.String()
	switch {
	case e.Found.IsZero():
		found = "is gone"
	case e.Found == e.Term:
		found = "has been changed: it says that the term has ended, or is another session's"
	}
	return fmt.Sprintf("leader: the row of %s in %s, which counts terms, %s, and the leader counted %v: later terms may not be greater: "+
		"write the row again, with that era and n", e.Election, e.Table, found, e.Term)
}

// Is reports whether target is leader.ErrPermanent.
func (e *RowError) Is(target error) bool { return target == driver.ErrPermanent }

// A NameError reports that the leader on this key has a different name for its election: two elections
// were given the same key, and share one leader. A deploy that renames an election causes this error too,
// until one of the new nodes leads.
type NameError struct {
	Key    string
	Name   string // of this node's election
	Other  string // of the leader's
	Leader string // its identity
}

func (e *NameError) Error() string {
	return fmt.Sprintf("leader: two elections share the key %s: this one is %q, and %s leads there as %q, so that one of the two has no leader: "+
		"give each a key of its own", e.Key, e.Name, e.Leader, e.Other)
}

// A TableError reports that the table of terms cannot be used. It matches leader.ErrPermanent, unless the
// table is missing and awaited.
type TableError struct {
	Table   string
	Missing bool // the table does not exist

	// Outdated reports that the table lacks a column that this version needs. If the table is neither Missing
	// nor Outdated, the role lacks rights.
	Outdated bool

	Awaited bool // Config.AwaitTable is set
	Cause   error
}

func (e *TableError) Error() string {
	if e.Missing {
		return fmt.Sprintf("leader: the table %s, which counts terms, does not exist: create it with postgres.Schema in a migration, Backend.Migrate, "+
			"pglatch migrate or Config.CreateTable, or do without terms (Config.NoTerms): %v", e.Table, e.Cause)
	}
	if e.Outdated {
		return fmt.Sprintf("leader: the table %s lacks a column that this version needs: rename it and make it anew with postgres.Schema, Backend.Migrate "+
			"or pglatch migrate, or use another table: %v", e.Table, e.Cause)
	}
	return fmt.Sprintf("leader: the role may not count terms in %[1]s: GRANT SELECT, INSERT, UPDATE ON %[2]s TO the role, and USAGE on its schema: %[3]v", e.Table, pgtable.Quote(e.Table), e.Cause)
}

// Is reports whether target is leader.ErrPermanent.
func (e *TableError) Is(target error) bool {
	return target == driver.ErrPermanent && !(e.Missing && e.Awaited)
}

// Unwrap returns the server's error.
func (e *TableError) Unwrap() error { return e.Cause }
