package postgres

import (
	"context"
	_ "embed" // the schema
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/lease"
)

const schemaName = "pglatch_lease"

// The parts of the schema, in order.
var (
	//go:embed schema/tables.sql
	tablesSQL string
	//go:embed schema/token.sql
	tokenSQL string
	//go:embed schema/clock.sql
	clockSQL string
	//go:embed schema/operations.sql
	operationsSQL string
	//go:embed schema/guard.sql
	guardingSQL string
	//go:embed schema/sweep.sql
	sweepingSQL string
	//go:embed schema/look.sql
	lookSQL string
)

// schema is the schema that this program makes, and needs at least.
var schema = pgtable.Schema{
	Name:    schemaName,
	Version: 1,
	SQL:     strings.Join([]string{tablesSQL, tokenSQL, clockSQL, operationsSQL, guardingSQL, sweepingSQL, lookSQL}, ""),
	Lock:    0x70676c656173650a,
}

// Schema returns SQL for migrations. It makes the schema pglatch_lease or updates an older one. It
// can be run again. Run it in one transaction: processes that run it at the same time then wait for
// each other. It fails, and changes nothing, if the schema is of a later version than this
// program's. Users of a Store need USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on its
// tables. Users of Guard need USAGE, SELECT and UPDATE.
func Schema() string { return schema.Script() }

// Migrate makes the schema pglatch_lease or updates an older one. If the schema is as new as this program or
// newer, Migrate does nothing and needs only USAGE and SELECT. Many processes may call it at the same time, and
// while programs use the store. It returns *lease.BusyError if transactions with a Guard, or other users of the
// tables, did not end within Config.LockTimeout. It returns the same error if it was the victim of a deadlock
// with one of them. In both cases nothing was done: try again.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.schema.Migrate(ctx, s.pool, s.wait)
	switch code := sqlstate.Of(err); {
	case err == nil:
		return nil
	case code == sqlstate.Privilege:
		return fmt.Errorf("lease/postgres: %w: the role may not make the schema %s: let one that may run Store.Migrate or postgres.Schema: %w", lease.ErrNotReady, schemaName, err)
	case code == sqlstate.ReadOnly || sqlstate.Undone(code):
		return failed(err)
	}
	if sqlstate.RefusesTransactions(err) {
		return fmt.Errorf("lease/postgres: %w: the schema %s is made in a transaction, which a pooler in statement mode refuses: "+
			"run Store.Migrate or postgres.Schema on a direct connection, or through a pool in session mode (PgBouncer: pool_mode=session): %w", lease.ErrNotReady, schemaName, err)
	}
	return fmt.Errorf("lease/postgres: making the schema %s: %w", schemaName, err)
}
