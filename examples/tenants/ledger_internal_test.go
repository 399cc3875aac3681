package main

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTheTableShowsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), ledgerSchema)
	require.NoError(t, err)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	write := func(second int, tenant string, term int, node string) {
		_, err := pool.Exec(t.Context(), `INSERT INTO acts (tenant, term, node, at) VALUES ($1, $2, $3, $4)`,
			tenant, term, node, began.Add(time.Duration(second)*time.Second))
		require.NoError(t, err)
	}
	l := ledger{pool}
	judged := func() judgement {
		j, err := l.judge(t.Context())
		require.NoError(t, err)
		return j
	}
	assert.Equal(t, judgement{}, judged())
	write(1, "x", 1, "A")
	write(1, "y", 1, "B")
	write(2, "x", 1, "A")
	write(7, "x", 2, "B")
	write(9, "y", 2, "A")
	assert.Equal(t, judgement{Rows: 5, Tenants: 2, Terms: 4}, judged())

	gaps, err := l.gaps(t.Context(), began.Add(4*time.Second), []string{"x", "y"})
	require.NoError(t, err)
	assert.Equal(t, []gap{{"x", "B", 3 * time.Second}, {"y", "A", 5 * time.Second}}, gaps, "from the fault on")
	gaps, err = l.gaps(t.Context(), began, []string{"x"})
	require.NoError(t, err)
	assert.Equal(t, []gap{{"x", "B", 5 * time.Second}}, gaps, "from the last row on; a first term has no gap")

	write(10, "x", 1, "A")
	assert.Equal(t, judgement{Rows: 6, Tenants: 2, Terms: 4, Stale: 1}, judged())
	write(11, "y", 2, "B")
	assert.Equal(t, judgement{Rows: 7, Tenants: 2, Terms: 4, Stale: 1, Shared: 1}, judged())
	write(12, "y", 3, "B")
	write(13, "x", 4, "B")
	write(14, "x", 3, "A")
	assert.Equal(t, judgement{Rows: 10, Tenants: 2, Terms: 7, Stale: 2, Shared: 1, Fallen: 1}, judged())
	gaps, err = l.gaps(t.Context(), began.Add(10*time.Second), []string{"x"})
	require.NoError(t, err)
	assert.Equal(t, []gap{{"x", "B", 3 * time.Second}}, gaps, "a term that fell is none")
}
