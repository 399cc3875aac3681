package postgres

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/lease"
)

const (
	schemaName    = "pglatch_lease"
	schemaVersion = 4
	neededVersion = "4" // the same, for use in statements
	// migrateLock is the advisory lock that migrations take for their transaction.
	migrateLock = 0x70676c656173650a
)

const beginSQL = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('synchronous_commit', 'on', true),
	pg_catalog.pg_advisory_xact_lock($1::bigint)`

// The parts of the schema, in order. version comes last, because it says that all parts are there.
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
	//go:embed schema/version.sql
	versionSQL string
)

// Schema returns the SQL, for migrations, that makes the schema pglatch_lease or updates an older
// one. It can be run again, but not by two processes at a time. Users of a Store need USAGE on the
// schema and SELECT, INSERT, UPDATE and DELETE on its tables. Users of Guard need USAGE, SELECT and
// UPDATE.
//
// The update from version 1 locks the table while it builds two indexes, some seconds for a million
// names. Operations meanwhile return *lease.BusyError. The update from version 2 keeps its tables.
func Schema() string {
	return strings.Join([]string{tablesSQL, tokenSQL, clockSQL, operationsSQL, guardingSQL, sweepingSQL, lookSQL, versionSQL}, "")
}

// Migrate makes the schema pglatch_lease or updates an older one. If the schema is as new as this
// program or newer, Migrate does nothing and needs no right. Many processes may call it at a time,
// and beside running programs. It returns *lease.BusyError if transactions with a Guard, or other
// users of the tables, did not end within Config.LockTimeout. Nothing was done then: try again.
func (s *Store) Migrate(ctx context.Context) error {
	if version, err := installed(ctx, s.pool); err == nil && version >= schemaVersion {
		return nil
	}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, beginSQL, int64(migrateLock)); err != nil {
			return err
		}
		if version, err := installed(ctx, tx); err != nil || version >= schemaVersion {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, true)", s.wait); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema())
		return err
	})
	switch code := sqlstate.Of(err); {
	case err == nil:
		return nil
	case code == sqlstate.Privilege:
		return fmt.Errorf("lease/postgres: %w: the role may not make the schema %s: let one that may run Store.Migrate or postgres.Schema: %w", lease.ErrNotReady, schemaName, err)
	case code == sqlstate.ReadOnly || isBusy(code):
		return failed(err)
	}
	if strings.Contains(err.Error(), "statement pooling mode") { // a violation of the protocol, as PgBouncer says
		return fmt.Errorf("lease/postgres: %w: the schema %s is made in a transaction, which a pooler in statement mode refuses: "+
			"run Store.Migrate or postgres.Schema on a direct connection, or through a pool in session mode (PgBouncer: pool_mode=session): %w", lease.ErrNotReady, schemaName, err)
	}
	return fmt.Errorf("lease/postgres: making the schema %s: %w", schemaName, err)
}

// A querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// installed returns the version of the schema; 0 if there is none.
func installed(ctx context.Context, db querier) (version int, err error) {
	var there bool
	if err := db.QueryRow(ctx, "SELECT pg_catalog.to_regclass('"+schemaName+".store') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = db.QueryRow(ctx, "SELECT schema_version FROM "+schemaName+".store").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
