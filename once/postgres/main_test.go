package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newStore returns a store on the database, with its table.
func newStore(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(postgres.Config{DSN: dsn, CreateTable: true})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	require.NoError(tb, s.Migrate(tb.Context()))
	return s
}

func newPool(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

func newRunner(tb testing.TB, c once.Config) *once.Runner {
	tb.Helper()
	r, err := once.New(c)
	require.NoError(tb, err)
	return r
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	_, err := pool.Exec(context.WithoutCancel(tb.Context()), sql, args...)
	require.NoError(tb, err)
}

func one[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	tb.Helper()
	require.NoError(tb, pool.QueryRow(tb.Context(), sql, args...).Scan(&v))
	return v
}

// thisMinute is a tick.
func thisMinute() time.Time { return once.Normal(time.Now().Truncate(time.Minute)) }
