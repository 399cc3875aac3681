package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/once"
)

// ErrNoTransaction means that DoTx or DoSQLTx was not called in a transaction. Nothing was run.
var ErrNoTransaction = session.ErrNoTransaction

// ErrReadOnly means that DoTx or DoSQLTx received a read-only transaction, which is aborted. Nothing
// was run.
var ErrReadOnly = txguard.ErrReadOnly

// failed converts the error of a statement. If the server reported it, its transaction is rolled
// back.
func failed(table string, err error) error {
	code := sqlstate.Of(err)
	refused, isRefused := errors.AsType[*pgtable.CreateError](err)
	switch {
	case err == nil:
		return nil
	case isRefused:
		return fmt.Errorf("once/postgres: %w: %w", once.ErrNotReady, refused)
	case errors.Is(err, ErrNoTransaction):
		return fmt.Errorf("once/postgres: %w", err)
	case code == sqlstate.NoTransaction:
		return fmt.Errorf("once/postgres: %w: pass a transaction, not a pool or a connection: %w", ErrNoTransaction, err)
	case sqlstate.Undone(code), code == sqlstate.UniqueViolation, pgconn.SafeToRetry(err):
		return fmt.Errorf("once/postgres: %w: %w", once.ErrBusy, err)
	case code == sqlstate.ProtocolViolation:
		return fmt.Errorf("once/postgres: %w: the pooler refuses transactions, as in statement mode: connect to PostgreSQL directly, or through a pool in session or transaction mode: %w",
			once.ErrNotReady, err)
	case code == sqlstate.ReadOnly:
		return fmt.Errorf("once/postgres: %w: %w", once.ErrNotReady, txguard.ReadOnly(err))
	case code == sqlstate.FeatureNotSupported:
		return fmt.Errorf("once/postgres: %w: the server is a standby: %w", once.ErrNotReady, err)
	case code == sqlstate.UndefinedColumn:
		return fmt.Errorf("once/postgres: %w: the table %s lacks a column that this version needs: rename it and make it anew with Store.Migrate or postgres.Schema, or use another table: %w",
			once.ErrNotReady, table, err)
	case code == sqlstate.UndefinedTable, code == sqlstate.InvalidSchema:
		return fmt.Errorf("once/postgres: %w: the table %s is not there: make it with Store.Migrate, Config.CreateTable, or postgres.Schema in a migration: %w",
			once.ErrNotReady, table, err)
	case code == sqlstate.Privilege:
		return fmt.Errorf("once/postgres: %[1]w: the role may not use the table %[2]s: GRANT SELECT, INSERT, UPDATE, DELETE ON %[2]s TO the role, and USAGE on its schema: %[3]w",
			once.ErrNotReady, table, err)
	}
	return fmt.Errorf("once/postgres: %w", err)
}
