package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/leader/driver"
)

// The connections that an election cannot live on.
var (
	// ErrPooler: the connection goes through a transaction pooler, where session
	// locks leak. Connect directly or through a pool in session mode.
	ErrPooler = session.ErrPooler
	// ErrStandby: the server is a standby, which has a lock space of its own.
	ErrStandby = session.ErrStandby
)

// ErrNoTransaction says that what Guard or GuardSQL got is not in a transaction: the guard
// ended with its own statement. Nothing is guarded. It says nothing about the term.
var ErrNoTransaction = session.ErrNoTransaction

// ErrReadOnly says that a guard that locks a row, as those of shards do, got a read-only transaction, which is aborted.
// It says nothing about the term. Guards of elections lock no row.
var ErrReadOnly = errors.New("the transaction is read-only, and the guard locks a row: begin it READ WRITE, on the primary; one that writes nothing needs no guard")

// A PendingError says what a takeover waits for. It matches driver.ErrPending, and
// the cause of the context that ended the attempt; the next attempt goes on. What the
// role may not see is zero.
type PendingError struct {
	Election string
	// Guarded: a guarded transaction of an earlier term is in flight. Otherwise the
	// session of an earlier leader is about to end.
	Guarded bool
	// PID is the server's number of the session that is waited for, 0 if none was seen
	// at the last look, or if the transaction is prepared.
	PID             uint32
	ApplicationName string    // of that session
	Role            string    // of that session, or of whoever prepared the transaction
	Since           time.Time // begin of the guarded transaction
	Prepared        string    // gid of a prepared transaction, which COMMIT PREPARED or ROLLBACK PREPARED ends
	// Needs is what the candidate's role lacks to end the session of the guarded
	// transaction after Config.GuardTimeout; "" if nothing, or if it is not to be ended.
	Needs  string
	Waited time.Duration
	Cause  error
}

func (e *PendingError) Error() string {
	what := "the session of an earlier leader"
	if e.Guarded {
		what = "a guarded transaction"
	}
	by := blocker{
		guarded: e.Guarded, pid: e.PID, applicationName: e.ApplicationName, role: e.Role, begin: e.Since, prepared: e.Prepared, needs: e.Needs,
	}
	return fmt.Sprintf("leader: takeover of %s waits for %s%s: %v", e.Election, what, by, e.Cause)
}

// Is reports whether target is driver.ErrPending.
func (e *PendingError) Is(target error) bool { return target == driver.ErrPending }

// Unwrap returns the cause of the context.
func (e *PendingError) Unwrap() error { return e.Cause }

// A NotLeaderError says that a guard refused a transaction, which cannot write
// any more. It matches leader.ErrNotLeader, and the cause of the context if that
// ended with its term.
type NotLeaderError struct {
	Election string      // "" if the context is not of a leader
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

// A TxEndedError says that the function that InTx ran ended the transaction, by a
// COMMIT, a ROLLBACK or PREPARE TRANSACTION of its own, or by the driver's.
//
// What it wrote before a COMMIT is committed, while its term led: the first guard
// held until then. What it wrote after, unless it began a transaction itself, was
// committed statement by statement and unguarded: a successor may have led by then.
// What it did in a transaction that it began and left open is rolled back. So some of
// the work can be done, and some not. A BEGIN inside of the transaction changes
// nothing but for a warning of the server's, and is no error.
type TxEndedError struct {
	Election string
	Term     driver.Term
	Cause    error // what the driver said, if it knew; else nil
}

func (e *TxEndedError) Error() string {
	text := fmt.Sprintf("leader: guarded transaction of %s in term %v: it was ended before its function returned, and what followed was not guarded: "+
		"leave the commit to InTx, and return an error for a rollback", e.Election, e.Term)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *TxEndedError) Unwrap() error { return e.Cause }

// A RowError says that somebody has changed the row of an election while its leader leads, or has deleted it. Its guards hold;
// the terms of later leaders may be no greater than its own. It matches leader.ErrPermanent.
type RowError struct {
	Election, Table string
	Term            driver.Term // of the leader
	Found           driver.Term // of the row; zero = it is gone
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

// A NameError says that the leader on this key calls its election by another name: two elections got one key, and have
// one leader together. A deploy that renames an election meets it too, until its own nodes lead.
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

// A TableError says that the table of terms cannot be used. It matches
// leader.ErrPermanent, unless the table is missing and awaited.
type TableError struct {
	Table   string
	Missing bool // it does not exist

	// Outdated tells that the table lacks a column that this version needs. If it is neither Missing nor Outdated, the role
	// lacks rights.
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
