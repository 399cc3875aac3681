package postgres_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// guardAny guards what has the methods of a transaction.
func guardAny(ctx context.Context, tx any) error {
	if tx, ok := tx.(postgres.PgxTx); ok {
		return postgres.Guard(ctx, tx)
	}
	return postgres.GuardSQL(ctx, tx.(postgres.SQLTx))
}

func TestWhatIsNotInATransactionIsNotGuarded(t *testing.T) {
	t.Parallel()
	txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
		j := newJudge(b, dsn)
		term := lead(b, newBackend(b, dsn, nil), "a")
		alone := j.locks()
		b.Each(txshapes.None, func(t *testing.T, _ string, tx any) {
			t.Helper()
			err := guardAny(term, tx)
			require.ErrorIs(t, err, postgres.ErrNoTransaction)
			require.ErrorContains(t, err, "pass a transaction")
			require.NotErrorIs(t, err, leader.ErrNotLeader, "that is not known")
			assert.Equal(t, alone, j.locks())
		})
	})
}

func TestWhatIsInATransactionIsGuarded(t *testing.T) {
	t.Parallel()
	txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
		j := newJudge(b, dsn)
		a := newBackend(b, dsn, nil)
		term := lead(b, a, "a")
		alone := j.locks()
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			for range 2 { // a second guard finds its own mark
				require.NoError(t, guardAny(term, tx))
				assert.Equal(t, alone+1, j.locks(), "the barrier is held")
			}
			require.NoError(t, txshapes.Exec(t.Context(), tx, "ROLLBACK"))
			assert.Equal(t, alone, j.locks())
		})
		release(b, a, "a")
		b.Each(txshapes.Begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			require.ErrorIs(t, guardAny(term, tx), leader.ErrNotLeader)
			require.ErrorContains(t, txshapes.Exec(t.Context(), tx, "SELECT 1"), "25P02")
		})
	})
}

// A counter counts the statements of a pool.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAGuardIsTwoStatementsAndInTxTwoBesideItsWork(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	term := lead(t, newBackend(t, dsn, nil), "a")
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	count := &counter{}
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })

	require.NoError(t, postgres.InTx(term, pool, func(context.Context, pgx.Tx) error { return nil }))
	assert.EqualValues(t, 4, count.n.Swap(0), "BEGIN, guard, guard, COMMIT")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(term, tx))
	require.NoError(t, tx.Commit(t.Context()))
	assert.EqualValues(t, 4, count.n.Swap(0), "BEGIN, guard, its outcome, COMMIT")
	sqlTx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, postgres.GuardSQL(term, sqlTx))
	require.NoError(t, sqlTx.Commit())
	assert.EqualValues(t, 4, count.n.Swap(0), "BEGIN, guard, its outcome, COMMIT")
}

func TestAGuardInsideOfInTxLooksLikeNoEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	require.NoError(t, postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, postgres.Guard(ctx, tx))
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, postgres.Guard(ctx, savepoint))
		require.NoError(t, savepoint.Rollback(ctx))
		return write(ctx, tx)
	}))
	require.ErrorAs(t, postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ROLLBACK; BEGIN")
		require.NoError(t, err)
		require.NoError(t, postgres.Guard(ctx, tx), "the other transaction has its own")
		return write(ctx, tx)
	}), new(*postgres.TxEndedError))
	assert.Equal(t, 1, judge.written())
}

func TestInTxNoticesATransactionOfAnotherInTxInThePlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	conn, err := judge.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	err = postgres.InTx(term, conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ROLLBACK")
		require.NoError(t, err)
		return postgres.InTx(term, conn, func(ctx context.Context, other pgx.Tx) error { // of the same session
			return write(ctx, other)
		})
	})
	require.ErrorAs(t, err, new(*postgres.TxEndedError))
	assert.Equal(t, 1, judge.written(), "the other's")
}

// endingTx ends its context before a statement.
type endingTx struct {
	pgx.Tx
	end context.CancelFunc
}

func (tx endingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx.end()
	return tx.Tx.QueryRow(ctx, sql, args...)
}

func TestAGuardWhoseContextEndsBetweenItsStatementsAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	ctx, cancel := context.WithCancel(lead(t, a, "a"))
	tx := judge.begin()
	err := postgres.Guard(ctx, endingTx{tx, cancel})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, leader.ErrNotLeader)
	require.ErrorContains(t, write(t.Context(), tx), "25P02")
	require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
}

func TestAGuardOfNilIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	term := lead(t, newBackend(t, pgtest.DSN(t), nil), "a")
	for _, ctx := range []context.Context{term, t.Context()} {
		for name, err := range map[string]error{
			"a nil transaction of pgx":          postgres.Guard(ctx, nil),
			"a nil transaction of database/sql": postgres.GuardSQL(ctx, nil),
			"a nil *sql.Tx":                     postgres.GuardSQL(ctx, (*sql.Tx)(nil)),
			"a nil *pgx.Conn":                   postgres.Guard(ctx, (*pgx.Conn)(nil)),
		} {
			require.ErrorIs(t, err, postgres.ErrNoTransaction, name)
			require.ErrorContains(t, err, "the transaction is nil", name)
		}
	}
}
