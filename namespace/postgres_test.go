package namespace_test

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// derivation is the SQL of doc.go: $1 the number, $2 the name, $3 the entity as
// it is hashed, $4 the role of a companion key or "".
const derivation = `
SELECT ($1::bigint << 48) | ('x' || encode(substr(sha256(
         int4send(octet_length(convert_to($2,'UTF8'))) ||
         convert_to($2,'UTF8') || convert_to($3,'UTF8') ||
         CASE $4 WHEN '' THEN ''::bytea ELSE '\x00'::bytea || convert_to($4,'UTF8') END), 1, 6), 'hex'))::bit(48)::bigint`

func TestPostgreSQLComputesTheSameKeys(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.DSN(t))
	for _, v := range vectors(t) {
		k := v.key(t)
		if k1, k2, ok := k.Tag().Pair(); ok {
			var sql1, sql2 int32
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT $1::int4, $2::text::int4`, v.Number, v.Entity).Scan(&sql1, &sql2))
			assert.Equal(t, [2]int32{sql1, sql2}, [2]int32{k1, k2}, "%v", v)
			continue
		}
		var sql int64
		require.NoError(t, conn.QueryRow(t.Context(), derivation, v.Number, v.Name, v.Shown, v.Role).Scan(&sql))
		single, ok := k.Tag().Single()
		require.True(t, ok)
		assert.Equal(t, sql, single, "%v", v)
	}
}

func TestPgLocksRowsDecodeToTheKeyThatWasTaken(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.DSN(t))
	edges := []int64{
		0, 1, -1, 42, math.MaxInt32, math.MinInt32, 1 << 31, 1<<31 + 1, math.MaxUint32, 1 << 32,
		-1 << 31, -1<<31 - 1, -1 << 32, 1 << 48, 1 << 62, math.MaxInt64, math.MinInt64, math.MinInt64 + 1,
	}
	for _, a := range edges {
		assertTaken(t, conn, namespace.SingleRaw(a), `SELECT pg_advisory_lock($1)`, a)
		for _, b := range edges {
			if k1, k2 := int32(a), int32(b); int64(k1) == a && int64(k2) == b {
				assertTaken(t, conn, namespace.Pair(k1, k2), `SELECT pg_advisory_lock($1, $2)`, k1, k2)
			}
		}
	}
}

// assertTaken takes a lock, rebuilds the Tag from its row of pg_locks, compares
// it with the key's, and reads the arguments back from it.
func assertTaken(t *testing.T, conn *pgx.Conn, k namespace.Key, lock string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), lock, args...)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `SELECT classid, objid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
	require.NoError(t, err)
	tag, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[namespace.Tag])
	require.NoError(t, err)
	require.Equal(t, k.Tag(), tag, "%v", k)

	if k1, k2, ok := tag.Pair(); ok {
		assert.Equal(t, args, []any{k1, k2})
	} else {
		single, ok := tag.Single()
		assert.True(t, ok)
		assert.Equal(t, args, []any{single})
	}
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`)
	require.NoError(t, err)
}
