package pgtable_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// tables are a table with a constraint and an index, and one without.
func tables(schema string) []pgtable.Table {
	return []pgtable.Table{
		{Name: schema + ".terms", Columns: `	name text NOT NULL,             -- a comment
	n bigint NOT NULL,
	UNIQUE (name)`, After: "CREATE INDEX IF NOT EXISTS terms_n ON " + pgtable.Quote(schema+".terms") + " (n)"},
		{Name: schema + ".orders", Columns: `	kind text NOT NULL,
	since timestamptz`},
	}
}

func TestManyProcessesCreateTablesAtATime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	for range 5 {
		var wg sync.WaitGroup
		for range 10 {
			other := dbtest.Pool(t, dsn)
			wg.Go(func() { assert.NoError(t, pgtable.Create(t.Context(), other, "", tables("public")...)) })
		}
		wg.Wait()
		assert.True(t, dbtest.One[bool](t, pool, "SELECT to_regclass('terms_n') IS NOT NULL"))
		dbtest.Exec(t, pool, "DROP TABLE terms, orders")
	}
}

func TestARoleThatMayNotCreateTables(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	dbtest.Exec(t, pool, "CREATE ROLE pgtable_plain; CREATE SCHEMA ops; GRANT USAGE ON SCHEMA ops TO pgtable_plain")
	t.Cleanup(func() { dbtest.Exec(t, pool, "DROP OWNED BY pgtable_plain; DROP ROLE pgtable_plain") })
	plain := dbtest.Pool(t, strings.Replace(dsn, "?", "?options=-c%20role%3Dpgtable_plain%20-c%20default_transaction_read_only%3Don&", 1))
	writer := dbtest.Pool(t, strings.Replace(dsn, "?", "?options=-c%20role%3Dpgtable_plain&", 1))
	create := func() error { return pgtable.Create(t.Context(), plain, "Migrate", tables("ops")...) }

	var refused *pgtable.CreateError
	err := pgtable.Create(t.Context(), writer, "Migrate", tables("ops")...)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, sqlstate.Privilege, sqlstate.Of(err))
	require.ErrorContains(t, err, "the role may not create the table ops.terms: let one that may run Migrate: ")
	require.ErrorAs(t, pgtable.Create(t.Context(), pool, "Migrate", tables("nowhere")...), &refused)
	require.ErrorContains(t, refused, "the schema of the table nowhere.terms does not exist: create it, or use another table: ")

	dbtest.Exec(t, pool, pgtable.SQL(tables("ops")...))
	err = create()
	assert.Equal(t, sqlstate.Privilege, sqlstate.Of(err))
	assert.NotErrorAs(t, err, &refused, "it lacks rights on the tables")
	dbtest.Exec(t, pool, "GRANT SELECT ON ops.terms, ops.orders TO pgtable_plain")
	require.NoError(t, create(), "nothing is to be done")
}

func TestATableThatLacksAColumnIsNotCompleted(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	for _, column := range []string{"terms.name", "terms.n", "orders.kind"} {
		dbtest.Exec(t, pool, pgtable.SQL(tables("public")...))
		table, name, _ := strings.Cut(column, ".")
		dbtest.Exec(t, pool, "ALTER TABLE "+table+" DROP COLUMN "+name)
		create := func() { // with all tables, and with one missing
			t.Helper()
			assert.Equal(t, sqlstate.UndefinedColumn, sqlstate.Of(pgtable.Create(t.Context(), pool, "", tables("public")...)), column)
		}
		create()
		if table == "terms" {
			dbtest.Exec(t, pool, "DROP TABLE orders")
			create()
			assert.True(t, dbtest.One[bool](t, pool, "SELECT to_regclass('orders') IS NULL"), "nothing was created")
		}
		dbtest.Exec(t, pool, "DROP TABLE IF EXISTS terms, orders")
	}
}

func TestANameIsATableOrASchemaAndATable(t *testing.T) {
	t.Parallel()
	for name, quoted := range map[string]string{
		"terms": `"public"."terms"`, "Ops.My_terms2": `"Ops"."My_terms2"`, "_": `"public"."_"`, strings.Repeat("a", 63): `"public"."` + strings.Repeat("a", 63) + `"`,
	} {
		assert.True(t, pgtable.Valid(name), name)
		assert.Equal(t, quoted, pgtable.Quote(name))
	}
	for _, name := range []string{"", ".", "a.", ".a", "a.b.c", "a b", "2a", `a"b`, "a-b", "ä", "a;b", "a\n", strings.Repeat("a", 64), strings.Repeat("a", 64) + ".a"} {
		assert.False(t, pgtable.Valid(name), name)
	}
}

func TestANameLeavesRoomForTheSuffixes(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a", 58)
	for _, schema := range []string{"", "ops.", strings.Repeat("s", 63) + "."} {
		assert.True(t, pgtable.Valid(schema+name, "_tick"))
		assert.False(t, pgtable.Valid(schema+name, "_tick", "_order"))
	}
}

func TestTheSQLOfTablesIsOneScript(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `CREATE TABLE IF NOT EXISTS "public"."a" (
	i int PRIMARY KEY
);
CREATE INDEX x ON a (i);
CREATE TABLE IF NOT EXISTS "ops"."b" (
	i int
)`, pgtable.SQL(pgtable.Table{Name: "a", Columns: "\ti int PRIMARY KEY", After: "CREATE INDEX x ON a (i)"}, pgtable.Table{Name: "ops.b", Columns: "\ti int"}))
}

func TestMain(m *testing.M) { pgtest.Main(m) }
