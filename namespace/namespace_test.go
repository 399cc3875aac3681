package namespace_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

func TestNewRefusesNumbersAndNamesThatCannotBeANamespace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number int
		name   string
		reason string
	}{
		{0, "agent", "1 to 32767"},
		{-1, "agent", "1 to 32767"},
		{32768, "agent", "1 to 32767"},
		{1, "", "at most 63 bytes"},
		{1, strings.Repeat("n", 64), "at most 63 bytes"},
		{1, "1agent", "begins with an ASCII letter"},
		{1, "-agent", "begins with an ASCII letter"},
		{1, "ag ent", "begins with an ASCII letter"},
		{1, "ag/ent", "begins with an ASCII letter"},
		{1, "agént", "begins with an ASCII letter"},
		{1, "ag\x00ent", "begins with an ASCII letter"},
		{1, "@agent", "begins with an ASCII letter"},
		{1, "ag[ent", "begins with an ASCII letter"},
		{1, "[agent", "begins with an ASCII letter"},
	} {
		n, err := namespace.New(c.number, c.name)
		require.ErrorIs(t, err, namespace.ErrInvalidNamespace, "%d %q", c.number, c.name)
		require.ErrorContains(t, err, c.reason)
		assert.Zero(t, n)
		assert.PanicsWithError(t, err.Error(), func() { namespace.Must(c.number, c.name) })
	}
}

func TestNewTakesTheWholeRange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "Z", "agent", "a.b-c_d9", strings.Repeat("n", 63)} {
		for _, number := range []int{1, 32767} {
			n, err := namespace.New(number, name)
			require.NoError(t, err)
			assert.Equal(t, name, n.Name())
			assert.Equal(t, number, n.Number())
		}
	}
	assert.Equal(t, "agent=1", agents.String())
}

func TestTextRefusesEntitiesThatNothingElseCouldName(t *testing.T) {
	t.Parallel()
	for entity, reason := range map[string]string{
		"":          "empty",
		"a\x00b":    "NUL byte",
		"a\xffb":    "UTF-8",
		"\xed\xa0a": "UTF-8",
	} {
		k, err := agents.Text(entity)
		require.ErrorIs(t, err, namespace.ErrInvalidKey, "%q", entity)
		require.ErrorContains(t, err, reason)
		assert.False(t, k.Valid())
	}
}

func TestTheZeroNamespaceMakesNoKey(t *testing.T) {
	t.Parallel()
	var zero namespace.Namespace
	assert.False(t, zero.ID(42).Valid())
	assert.False(t, zero.ID(math.MaxInt64).Valid())
	assert.False(t, zero.UUID(uuid.UUID{}).Valid())
	for _, entity := range []string{"42", "x"} {
		k, err := zero.Text(entity)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "namespace.New")
		assert.False(t, k.Valid())
	}
}

func TestEveryTextMakesTheKeyOfItsMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64().Draw(t, "id")
		u := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		n := namespace.Must(rapid.IntRange(1, namespace.MaxNumber).Draw(t, "number"), "agent")

		assertSame(t, n, n.ID(id), rapid.Just(n.ID(id).Entity()).Draw(t, "decimal"))
		assertSame(t, n, n.UUID(u), u.String())
		assertSame(t, n, n.UUID(u), strings.ToUpper(u.String()))

		text := rapid.StringN(1, -1, 200).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }).Draw(t, "text")
		k, err := n.Text(text)
		require.NoError(t, err)
		assertInNamespace(t, n, k)
		assertSame(t, n, k, k.Entity())
	})
}

func assertSame(t require.TestingT, n namespace.Namespace, want namespace.Key, text string) {
	k, err := n.Text(text)
	require.NoError(t, err)
	require.Equal(t, want, k)
}

// assertInNamespace checks the layout: the number is readable and the sign bit free.
func assertInNamespace(t require.TestingT, n namespace.Namespace, k namespace.Key) {
	require.Equal(t, n, k.Namespace())
	if single, ok := k.Tag().Single(); ok {
		require.Equal(t, int64(n.Number()), single>>48)
		return
	}
	k1, _, ok := k.Tag().Pair()
	require.True(t, ok)
	require.Equal(t, int32(n.Number()), k1)
}

func FuzzText(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Entity)
	}
	f.Add("")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, entity string) {
		k, err := agents.Text(entity)
		if err != nil {
			require.ErrorIs(t, err, namespace.ErrInvalidKey)
			require.False(t, k.Valid())
			return
		}
		assertInNamespace(t, agents, k)
		assertSame(t, agents, k, k.Entity())
	})
}

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

func TestMain(m *testing.M) { pgtest.Main(m) }
