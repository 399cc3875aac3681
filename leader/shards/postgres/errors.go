package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	shardsdriver "github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// The errors of connections and servers that shards cannot use.
var (
	// ErrPooler means that the connection goes through a transaction pooler, where session locks leak.
	// Connect directly or through a pool in session mode.
	ErrPooler = session.ErrPooler
	// ErrStandby means that the server is a standby, which has its own lock space.
	ErrStandby = session.ErrStandby
	// ErrLockTableFull means that the server has no room for more locks, or that MaxLocks allows no
	// more.
	ErrLockTableFull = session.ErrLockTableFull
)

// A TableError reports that a table cannot be used. It matches leader.ErrPermanent.
type TableError struct {
	Table    string // the table of terms
	Missing  bool   // one of the tables does not exist
	Outdated bool   // one of the tables lacks a column that this version needs; if neither is set, the role lacks rights
	Cause    error
}

func (e *TableError) Error() string {
	if e.Missing {
		return fmt.Sprintf("shards: the table %[1]s, which counts terms, or one of %[1]s%[2]s and %[1]s%[3]s does not exist: create them with postgres.Schema in a migration, "+
			"Backend.Migrate or Config.CreateTable: %[4]v", e.Table, memberSuffix, orderSuffix, e.Cause)
	}
	if e.Outdated {
		return fmt.Sprintf("shards: the table %[1]s, %[1]s%[2]s or %[1]s%[3]s lacks a column that this version needs: rename the three and make them anew with "+
			"postgres.Schema or Backend.Migrate, or use another table: %[4]v", e.Table, memberSuffix, orderSuffix, e.Cause)
	}
	return fmt.Sprintf("shards: the role lacks rights on the tables of shards: GRANT SELECT, INSERT, UPDATE ON %[1]s, SELECT, INSERT, UPDATE, DELETE ON %[2]s "+
		"and SELECT ON %[3]s TO the role, and USAGE on their schema: %[4]v",
		pgtable.Quote(e.Table), pgtable.Quote(e.Table+memberSuffix), pgtable.Quote(e.Table+orderSuffix), e.Cause)
}

// Is reports whether target is leader.ErrPermanent.
func (e *TableError) Is(target error) bool { return target == driver.ErrPermanent }

// Unwrap returns the cause, usually the server's error.
func (e *TableError) Unwrap() error { return e.Cause }

// A ClashError reports that two shards have the same key. Among 10,000 names, two clash with a probability of
// 2⁻²²; names that are 32-bit integers never clash. The other shard can be owned, but this one cannot. Rename
// one of them.
type ClashError struct {
	Shard, Other string
	Key          string
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("shards: %q and %q have the same key %s: only the second, which was claimed first, can be owned: rename one of them", e.Shard, e.Other, e.Key)
}

// Is reports whether target is driver.ErrUnclaimable of package shards.
func (e *ClashError) Is(target error) bool { return target == shardsdriver.ErrUnclaimable }

// A BudgetError reports that a claim got no shards because the server has too many locks. It
// matches ErrLockTableFull. Shards that were owned before stay owned.
type BudgetError struct {
	Wanted int   // how many shards were left out
	Locks  int64 // locks of the server
	Limit  int64 // Config.MaxLocks
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("shards: %d shards are not claimed: the server has %d locks of %d that Config.MaxLocks allows, and with a full lock table no session could do anything: "+
		"raise max_locks_per_transaction", e.Wanted, e.Locks, e.Limit)
}

// Is reports whether target is ErrLockTableFull.
func (e *BudgetError) Is(target error) bool { return target == ErrLockTableFull }

// A GuardedError reports that a claim got no shards because guarded transactions of earlier terms are
// under way. They end by the timeouts that Guard has set for them, or after Config.GuardTimeout. Then the
// shards can be claimed. The error matches driver.ErrUnclaimable.
type GuardedError struct {
	Shards []string
	// Pending describes a transaction that blocks one of the shards. nil = the claim has not checked yet,
	// or found no such transaction because somebody has locked the row by hand.
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

// A SlowError reports that a claim was not answered within a quarter of the lease, or three seconds. The claim
// was canceled, because renewals wait behind it. The session continues, keeps the shards that it owned before,
// and owns none of the claimed names. It matches driver.ErrSlow.
type SlowError struct {
	PID   uint32 // pid of the session
	Cause error
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("shards: a claim was canceled, because its statement or commit took too long: what is owned stays, and fewer shards are claimed next; "+
		"look in pg_stat_activity for what pid %d waits when it claims: a synchronous standby that is away, a trigger, a slow disk: %v", e.PID, e.Cause)
}

// Is reports whether target is driver.ErrSlow of package shards.
func (e *SlowError) Is(target error) bool { return target == shardsdriver.ErrSlow }

// Unwrap returns the reason for the cancellation.
func (e *SlowError) Unwrap() error { return e.Cause }

// failed types an error of a session's statement.
func (b *Backend) failed(err error) error {
	if errors.Is(err, session.ErrRefused) || errors.Is(err, session.ErrUnavailable) { // nothing is known of the tables
		return pgreach.Unreachable(err)
	}
	if errors.Is(err, group.ErrRights) {
		return &TableError{Table: b.config.Table, Cause: err}
	}
	switch state := sqlstate.Of(err); state {
	case sqlstate.UndefinedTable, sqlstate.UndefinedColumn, sqlstate.Privilege:
		return &TableError{Table: b.config.Table, Missing: state == sqlstate.UndefinedTable, Outdated: state == sqlstate.UndefinedColumn, Cause: err}
	case sqlstate.LockNotAvailable:
		return fmt.Errorf("shards: another transaction has locked rows of %s, or the table: %w", b.config.Table, err)
	}
	return pgreach.Unreachable(err)
}
