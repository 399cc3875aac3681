package pgtable_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// version returns a version of a schema with a function that tells it.
func version(n int) pgtable.Schema {
	function := "CREATE OR REPLACE FUNCTION shelf.version() RETURNS int LANGUAGE sql AS 'SELECT " + string(rune('0'+n)) + "';\n"
	return pgtable.Schema{Name: "shelf", Version: n, Lock: 1, SQL: `CREATE SCHEMA IF NOT EXISTS shelf;
CREATE TABLE IF NOT EXISTS shelf.store (one bool PRIMARY KEY DEFAULT true CHECK (one), schema_version int NOT NULL);
INSERT INTO shelf.store (schema_version) VALUES (0) ON CONFLICT DO NOTHING;
` + function}
}

const versionSQL = "SELECT s.schema_version * 10 + shelf.version() FROM shelf.store AS s"

func TestManyProcessesMigrateASchemaAtATime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	installed, err := version(1).Installed(t.Context(), pool)
	require.NoError(t, err)
	assert.Zero(t, installed)
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range 10 {
			other := dbtest.Pool(t, dsn)
			wg.Go(func() {
				if i%2 == 0 {
					assert.NoError(t, version(1+i%3).Migrate(t.Context(), other, "20s"))
				} else {
					_, err := other.Exec(t.Context(), version(3).Script())
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 33, dbtest.One[int](t, pool, versionSQL), "round %d", round)
		dbtest.Exec(t, pool, "DROP SCHEMA shelf CASCADE")
	}
}

// The script of an earlier version would replace functions with older ones.
func TestALaterVersionStays(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	for n := range 2 {
		require.NoError(t, version(n+1).Migrate(t.Context(), pool, "1s"))
		assert.Equal(t, 11*(n+1), dbtest.One[int](t, pool, versionSQL))
	}
	require.NoError(t, version(1).Migrate(t.Context(), pool, "1s"))
	_, err := pool.Exec(t.Context(), version(1).Script())
	require.ErrorContains(t, err, "the schema shelf has version 2, and this SQL makes version 1: nothing was changed")
	assert.Equal(t, 22, dbtest.One[int](t, pool, versionSQL))
	dbtest.Exec(t, pool, version(1).SQL)
	assert.Equal(t, 21, dbtest.One[int](t, pool, versionSQL), "the control")
}

// A session remembers that there was no schema. It must not believe it after the wait for a migration.
func TestAMigrationThatWaitedForALaterVersionLeavesItAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	for name, run := range map[string]func(*pgxpool.Pool) error{
		"Migrate": func(other *pgxpool.Pool) error { return version(1).Migrate(t.Context(), other, "20s") },
		"Script":  func(other *pgxpool.Pool) error { _, err := other.Exec(t.Context(), version(1).Script()); return err },
	} {
		other := dbtest.Pool(t, dsn+"&pool_max_conns=1")
		assert.True(t, dbtest.One[bool](t, other, "SELECT to_regclass('shelf.store') IS NULL"))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), version(2).Script())
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- run(other) }()
		await.Until(t, 20*time.Second, func() bool {
			return dbtest.One[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
		})
		require.NoError(t, tx.Commit(t.Context()))
		if err := <-done; name == "Script" {
			require.ErrorContains(t, err, "has version 2, and this SQL makes version 1")
		} else {
			require.NoError(t, err)
		}
		assert.Equal(t, 22, dbtest.One[int](t, pool, versionSQL), name)
		dbtest.Exec(t, pool, "DROP SCHEMA shelf CASCADE")
	}
}

func TestAMigrationThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	require.NoError(t, version(1).Migrate(t.Context(), pool, "1s"))
	broken := version(2)
	broken.SQL += "SELECT 1 / 0;"
	require.ErrorContains(t, broken.Migrate(t.Context(), pool, "1s"), "division by zero")
	assert.Equal(t, 11, dbtest.One[int](t, pool, versionSQL))
}

func TestAMigrationWaitsForOthersOnTheTablesOnlySoLong(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	require.NoError(t, version(1).Migrate(t.Context(), pool, "1s"))
	next := version(2)
	next.SQL += "ALTER TABLE shelf.store ADD COLUMN IF NOT EXISTS remark text;"
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM shelf.store")
	require.NoError(t, err)
	assert.Equal(t, sqlstate.LockNotAvailable, sqlstate.Of(next.Migrate(t.Context(), pool, "10ms")))
	assert.Equal(t, 11, dbtest.One[int](t, pool, versionSQL))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, next.Migrate(t.Context(), pool, "20s"))
	assert.Equal(t, 22, dbtest.One[int](t, pool, versionSQL))
}

// The settings of the caller's role change nothing.
func TestASchemaIsMigratedWhateverTheSearchPathIs(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	dbtest.Exec(t, pool, `CREATE SCHEMA evil; CREATE FUNCTION evil.no(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false';
		CREATE FUNCTION evil.yes(int, int) RETURNS bool LANGUAGE sql AS 'SELECT true';
		CREATE OPERATOR evil.< (FUNCTION = evil.no, LEFTARG = int, RIGHTARG = int); CREATE OPERATOR evil.> (FUNCTION = evil.yes, LEFTARG = int, RIGHTARG = int)`)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Commit(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL search_path = evil, pg_catalog")
	require.NoError(t, err)
	var caught bool
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT 1 > 2").Scan(&caught))
	require.True(t, caught, "the control")
	for n := range 2 {
		_, err = tx.Exec(t.Context(), version(n+1).Script())
		require.NoError(t, err)
		installed, err := version(1).Installed(t.Context(), tx)
		require.NoError(t, err)
		assert.Equal(t, n+1, installed)
	}
}
