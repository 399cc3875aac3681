// Package tables lists what SQL makes in a database, for golden files of package frozen.
package tables

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// tablesSQL lists what a database has that PostgreSQL did not bring: columns, indexes, constraints, functions, triggers
// and sequences.
const tablesSQL = `WITH ours AS (
	SELECT oid, nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'
)
SELECT format('column %I.%I.%I %s%s%s', n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
	CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN ours n ON n.oid = c.relnamespace
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index ' || pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN ours n ON n.oid = c.relnamespace
UNION ALL
SELECT format('constraint of %I.%I: %s', n.nspname, c.relname, pg_get_constraintdef(k.oid))
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN ours n ON n.oid = c.relnamespace WHERE k.contype <> 'n'
UNION ALL
SELECT format('function %I.%I(%s) returns %s', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid))
FROM pg_proc p JOIN ours n ON n.oid = p.pronamespace
UNION ALL
SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN ours n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal
UNION ALL
SELECT format('sequence %I.%I', n.nspname, c.relname) FROM pg_class c JOIN ours n ON n.oid = c.relnamespace WHERE c.relkind = 'S'`

// Of returns what a schema's SQL makes in an empty database.
func Of(tb testing.TB, schema string) []string {
	tb.Helper()
	conn := pgtest.Connect(tb, pgtest.DSN(tb))
	_, err := conn.Exec(tb.Context(), schema, pgx.QueryExecModeSimpleProtocol)
	require.NoError(tb, err)
	rows, err := conn.Query(tb.Context(), tablesSQL)
	require.NoError(tb, err)
	facts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(tb, err)
	require.NotEmpty(tb, facts)
	return facts
}
