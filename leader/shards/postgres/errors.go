package postgres

import (
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	shardsdriver "github.com/pglatch/pglatch/leader/shards/driver"
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
		pgtable.Quote(e.Table), pgtable.Quote(e.Table+memberSuffix), pgtable.Quote(e.Table+orderSuffix), e.Cause)
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

// Is reports whether target is driver.ErrUnclaimable of package shards.
func (e *ClashError) Is(target error) bool { return target == shardsdriver.ErrUnclaimable }

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

// A GuardedError says that a claim got nothing because transactions that earlier terms have guarded are under way. They end by themselves,
// by the times that Guard has set for them, or when Config.GuardTimeout is over, and the shards can be claimed then. It matches driver.ErrUnclaimable.
type GuardedError struct {
	Shards []string
	// Pending says which transaction holds one of them up; nil = it was not looked for yet, or none was seen: somebody has locked the row by hand.
	Pending *PendingError
}

func (e *GuardedError) Error() string {
	text := fmt.Sprintf("shards: %d shards, such as %q, are not claimed: transactions that earlier terms have guarded are under way", len(e.Shards), e.Shards[0])
	if e.Pending != nil {
		text += ": " + strings.TrimPrefix(e.Pending.Error(), "leader: ")
	}
	return text
}

// Is reports whether target is driver.ErrUnclaimable of package shards.
func (e *GuardedError) Is(target error) bool { return target == shardsdriver.ErrUnclaimable }

// A SlowError says that a claim had no answer within a quarter of the lease, or three seconds, and was cancelled, because renewals wait behind it. The
// session lasts, keeps what it owned before, and owns none of the names. It matches driver.ErrSlow.
type SlowError struct {
	PID   uint32 // of the session
	Cause error
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("shards: a claim was cancelled, because its statement or commit took too long: what is owned stays, and fewer shards are claimed next; "+
		"look in pg_stat_activity for what pid %d waits when it claims: a synchronous standby that is away, a trigger, a slow disk: %v", e.PID, e.Cause)
}

// Is reports whether target is driver.ErrSlow of package shards.
func (e *SlowError) Is(target error) bool { return target == shardsdriver.ErrSlow }

// Unwrap returns why it was cancelled.
func (e *SlowError) Unwrap() error { return e.Cause }

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
