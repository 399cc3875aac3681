package postgres

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// What shards cannot live on.
var (
	// ErrPooler: the connection goes through a transaction pooler, where session
	// locks leak. Connect directly or through a pool in session mode.
	ErrPooler = session.ErrPooler
	// ErrStandby: the server is a standby, which has a lock space of its own.
	ErrStandby = session.ErrStandby
	// ErrLockTableFull: the server has no room for more locks, or MaxLocks leaves none.
	ErrLockTableFull = session.ErrLockTableFull
)

// A TableError says that a table cannot be used. It matches leader.ErrPermanent.
type TableError struct {
	Table   string // that counts the terms
	Missing bool   // else the role lacks rights
	Cause   error
}

func (e *TableError) Error() string {
	if e.Missing {
		return fmt.Sprintf("shards: the table %[1]s, which counts terms, or one of %[1]s%[2]s and %[1]s%[3]s does not exist: create them with postgres.Schema in a migration, "+
			"Backend.Migrate or Config.CreateTable: %[4]v", e.Table, memberSuffix, orderSuffix, e.Cause)
	}
	return fmt.Sprintf("shards: the role lacks rights on the tables of shards: GRANT SELECT, INSERT, UPDATE ON %[1]s, SELECT, INSERT, UPDATE, DELETE ON %[2]s "+
		"and SELECT ON %[3]s TO the role, and USAGE on their schema: %[4]v",
		pgsession.QuoteTable(e.Table), pgsession.QuoteTable(e.Table+memberSuffix), pgsession.QuoteTable(e.Table+orderSuffix), e.Cause)
}

// Is reports whether target is leader.ErrPermanent.
func (e *TableError) Is(target error) bool { return target == driver.ErrPermanent }

// Unwrap returns the server's error.
func (e *TableError) Unwrap() error { return e.Cause }

// A ClashError says that the keys of two shards are one, which 2 of 10,000 names have with a probability of 2⁻²²; names that
// are integers of 32 bits never have. The other one can be owned, and this one not. Rename one of them.
type ClashError struct {
	Shard, Other string
	Key          string
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("shards: %q and %q have the same key %s: only the second, which was claimed first, can be owned: rename one of them", e.Shard, e.Other, e.Key)
}

// A BudgetError says that a claim got nothing because the server has too many locks. It matches
// ErrLockTableFull. What was owned before stays.
type BudgetError struct {
	Wanted int   // how many shards were left out
	Locks  int64 // that there are
	Limit  int64 // Config.MaxLocks
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("shards: %d shards are not claimed: the server has %d locks of %d that Config.MaxLocks allows, and with a full lock table no session could do anything: "+
		"raise max_locks_per_transaction", e.Wanted, e.Locks, e.Limit)
}

// Is reports whether target is ErrLockTableFull.
func (e *BudgetError) Is(target error) bool { return target == ErrLockTableFull }

// A GuardedError says that a claim got nothing because transactions that earlier terms have guarded are under way. They end by themselves, or
// by the times that Guard has set for them, and the shards can be claimed then.
type GuardedError struct {
	Shards []string
}

func (e *GuardedError) Error() string {
	return fmt.Sprintf("shards: %d shards, such as %q, are not claimed: transactions that earlier terms have guarded are under way", len(e.Shards), e.Shards[0])
}

// failed types an error of a session's statement.
func (b *Backend) failed(err error) error {
	switch sqlstate.Of(err) {
	case sqlstate.UndefinedTable, sqlstate.Privilege:
		return &TableError{Table: b.config.Table, Missing: sqlstate.Of(err) == sqlstate.UndefinedTable, Cause: err}
	}
	if sqlstate.Of(err) == sqlstate.LockNotAvailable {
		return fmt.Errorf("shards: another transaction has locked rows of %s, or the table: %w", b.config.Table, err)
	}
	return pgreach.Unreachable(err)
}
