package pgtable

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Schema is a schema of the database with a version, which the one row of its table store has. Programs of two
// versions can use it at a time: a later version keeps what programs of the earlier one use.
type Schema struct {
	Name    string // in lower case
	Version int

	// SQL makes the schema, or updates any earlier version. It can be run again. It leaves schema_version in the table
	// store alone, where a new row has 0.
	SQL string
	// Lock is the advisory lock that migrations take for their transaction.
	Lock int64
}

const (
	// thereSQL reports whether the schema has its table. After a wait for a lock, to_regclass could still answer from the
	// session's cache that there is none.
	thereSQL = `EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		WHERE n.nspname OPERATOR(pg_catalog.=) '%[1]s' AND c.relname OPERATOR(pg_catalog.=) 'store')`
	// scriptSQL is the begin of the script. It does not touch a later version, whose functions it would replace.
	scriptSQL = `DO $pglatch$
DECLARE
	present int;
BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock(%[3]d);
	IF ` + thereSQL + ` THEN
		SELECT s.schema_version INTO present FROM %[1]s.store AS s;
		IF present OPERATOR(pg_catalog.>) %[2]d THEN
			RAISE EXCEPTION 'the schema %[1]s has version %%, and this SQL makes version %[2]d: nothing was changed', present;
		END IF;
	END IF;
END $pglatch$;

`
	// versionSQL is its end, which says that all is there.
	versionSQL = `
UPDATE %[1]s.store AS s SET schema_version = %[2]d WHERE s.schema_version OPERATOR(pg_catalog.<) %[2]d;
`
	beginSQL = `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('synchronous_commit', 'on', true),
	pg_catalog.pg_advisory_xact_lock($1::bigint)`
)

// Script returns the SQL that makes the schema or updates an earlier version. It can be run again. Scripts that run at
// one time wait for each other, if each runs in one transaction.
func (s Schema) Script() string {
	return fmt.Sprintf(scriptSQL, s.Name, s.Version, s.Lock) + s.SQL + fmt.Sprintf(versionSQL, s.Name, s.Version)
}

// Migrate runs the script in a transaction, unless the schema has this version or a later one. Then Migrate needs only
// the right to read the version. Many processes may call it at a time. lockTimeout, as in PostgreSQL's setting, bounds
// the wait for other transactions that use the schema.
func (s Schema) Migrate(ctx context.Context, pool *pgxpool.Pool, lockTimeout string) error {
	if version, err := s.Installed(ctx, pool); err == nil && version >= s.Version {
		return nil
	}
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, beginSQL, s.Lock); err != nil {
			return err
		}
		if version, err := s.Installed(ctx, tx); err != nil || version >= s.Version {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, true)", lockTimeout); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.Script())
		return err
	})
}

// A Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Installed returns the version of the schema in the database; 0 if there is none.
func (s Schema) Installed(ctx context.Context, db Querier) (version int, err error) {
	var there bool
	if err := db.QueryRow(ctx, "SELECT "+fmt.Sprintf(thereSQL, s.Name)).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = db.QueryRow(ctx, "SELECT schema_version FROM "+s.Name+".store").Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
