package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// ttl is long: what ends in a test does not end by it.
const ttl = time.Minute

const patience = await.Soon

// open returns a store on the database; change may be nil.
func open(tb testing.TB, dsn string, change func(*postgres.Config)) *postgres.Store {
	tb.Helper()
	config := postgres.Config{DSN: dsn}
	if change != nil {
		change(&config)
	}
	s, err := postgres.New(config)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// newStore returns a store on the database, with its schema.
func newStore(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s := open(tb, dsn, nil)
	require.NoError(tb, s.Migrate(tb.Context()))
	return s
}

func acquire(tb testing.TB, s lease.Store, name, holder string) lease.Lease {
	tb.Helper()
	l, err := s.Acquire(tb.Context(), lease.AcquireRequest{Name: name, Holder: holder, TTL: ttl})
	require.NoError(tb, err)
	return l
}

// cycle acquires and releases, and returns the token.
func cycle(tb testing.TB, s lease.Store, name string) uint64 {
	tb.Helper()
	l := acquire(tb, s, name, "cycle")
	require.NoError(tb, s.Release(tb.Context(), l.Claim))
	return l.Token
}

// A judge is an ordinary connection, which says what the server knows.
type judge struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func newJudge(tb testing.TB, dsn string) judge {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = max(config.MaxConns, 16) // for transactions that stay open
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return judge{tb, pool}
}

func (j judge) exec(sql string, args ...any) {
	j.t.Helper()
	_, err := j.pool.Exec(context.Background(), sql, args...)
	require.NoError(j.t, err)
}

func one[T any](j judge, sql string, args ...any) T {
	j.t.Helper()
	var v T
	require.NoError(j.t, j.pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// expire puts the end of a lease into the past.
func (j judge) expire(name string) {
	j.t.Helper()
	j.exec(`UPDATE pglatch_lease.locks SET expires_at = expires_at - interval '2 days', available_at = available_at - interval '2 days',
		acquired_at = acquired_at - interval '2 days', due_at = '-infinity' WHERE name = $1`, name)
}

// rowWaiter blocks until somebody waits for a row.
func (j judge) rowWaiter() {
	j.t.Helper()
	j.eventually(func() bool {
		return one[int](j, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
}

func (j judge) eventually(condition func() bool) {
	j.t.Helper()
	await.Until(j.t, patience, condition)
}

// begin begins a transaction, which is rolled back at the end of the test.
func (j judge) begin() pgx.Tx {
	j.t.Helper()
	tx, err := j.pool.Begin(context.Background())
	require.NoError(j.t, err)
	j.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func startServer(t *testing.T, settings map[string]string) *pgserver.Server {
	t.Helper()
	return pgtest.StartServer(t, pgserver.Options{Settings: settings})
}
