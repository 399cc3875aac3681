package pgtable_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(context.WithoutCancel(t.Context()), sql)
	require.NoError(t, err)
}

func one[V any](t *testing.T, pool *pgxpool.Pool, sql string) (v V) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&v))
	return v
}
