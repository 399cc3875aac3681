package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// endings are what a function can do to its transaction; written is how many of the
// rows that it wrote before and after are there then.
var endings = []struct {
	sql     string
	written int
	ends    bool
}{
	{"COMMIT", 2, true},
	{"ROLLBACK", 1, true},
	{"COMMIT; BEGIN", 1, true},
	{"ROLLBACK; BEGIN", 0, true},
	{"COMMIT AND CHAIN", 1, true},
	{"ROLLBACK AND CHAIN", 0, true},
	{"BEGIN", 2, false},
	{"SAVEPOINT a; ROLLBACK TO a", 2, false},
	{"SET LOCAL work_mem = '1MB'", 2, false},
}

func TestInTxNoticesThatItsFunctionEndedTheTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	db := stdlib.OpenDBFromPool(judge.pool)
	defer func() { require.NoError(t, db.Close()) }()
	for _, c := range endings {
		for driver, inTx := range map[string]func() error{
			"pgx": func() error {
				return postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
					require.NoError(t, write(ctx, tx))
					_, err := tx.Exec(ctx, c.sql)
					require.NoError(t, err)
					return write(ctx, tx)
				})
			},
			"database/sql": func() error {
				return postgres.InSQLTx(term, db, func(ctx context.Context, tx *sql.Tx) error {
					for _, sql := range []string{"INSERT INTO written VALUES ('x')", c.sql, "INSERT INTO written VALUES ('x')"} {
						_, err := tx.ExecContext(ctx, sql)
						require.NoError(t, err)
					}
					return nil
				})
			},
		} {
			err := inTx()
			if c.ends {
				var ended *postgres.TxEndedError
				require.ErrorAs(t, err, &ended, "%s by %s", c.sql, driver)
				assert.Equal(t, "1:100", ended.Election)
				assert.Equal(t, leader.Term{Era: 1, N: 1}, ended.Term)
			} else {
				require.NoError(t, err, "%s by %s", c.sql, driver)
			}
			assert.Equal(t, c.written, judge.written(), "%s by %s", c.sql, driver)
			judge.exec("DELETE FROM written")
		}
	}
	assert.Zero(t, judge.pool.Stat().AcquiredConns())
	require.NoError(t, postgres.InTx(term, judge.pool, write), "the connections are as they were")
}

func TestInTxNoticesThatItsFunctionUsedTheDriversCommitOrRollback(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	db := stdlib.OpenDBFromPool(judge.pool)
	defer func() { require.NoError(t, db.Close()) }()
	for _, commit := range []bool{true, false} {
		err := postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, write(ctx, tx))
			if commit {
				return tx.Commit(ctx)
			}
			return tx.Rollback(ctx)
		})
		require.ErrorAs(t, err, new(*postgres.TxEndedError))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		err = postgres.InSQLTx(term, db, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO written VALUES ('x')")
			require.NoError(t, err)
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		})
		require.ErrorAs(t, err, new(*postgres.TxEndedError))
		require.ErrorIs(t, err, sql.ErrTxDone)
	}
	assert.Equal(t, 2, judge.written(), "what was committed stays")
	assert.Zero(t, judge.pool.Stat().AcquiredConns())
}

func TestWhatTheFunctionCommittedItselfWasGuardedUntilThen(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	err := postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		release(t, a, "a")
		heldUp(t, b, "b")
		require.NoError(t, write(ctx, tx))
		_, err := tx.Exec(ctx, "COMMIT")
		require.NoError(t, err)
		lead(t, b, "b")
		return write(ctx, tx) // stale, and nobody can refuse it: the control
	})
	require.ErrorAs(t, err, new(*postgres.TxEndedError))
	assert.Equal(t, 2, judge.written())
}

// heldUp makes attempts until one is held up by a guarded transaction.
func heldUp(t *testing.T, b *postgres.Backend, identity string) {
	t.Helper()
	judge{t: t}.eventually(func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		won, err := b.TryAcquire(ctx, identity, ttl)
		require.False(t, won)
		return errors.Is(err, driver.ErrPending)
	})
}

func TestInTxPassesOnTheOptionsOfTheTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	db := stdlib.OpenDBFromPool(judge.pool)
	defer func() { require.NoError(t, db.Close()) }()
	const look = `SELECT current_setting('transaction_isolation') || ' ' || current_setting('transaction_read_only')`
	var seen string
	require.NoError(t, postgres.InTxOptions(term, judge.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, tx.QueryRow(ctx, look).Scan(&seen))
		return write(ctx, tx)
	}))
	assert.Equal(t, "serializable off", seen)
	require.NoError(t, postgres.InTxOptions(term, judge.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, look).Scan(&seen)
	}))
	assert.Equal(t, "repeatable read on", seen)
	require.NoError(t, postgres.InSQLTxOptions(term, db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, look).Scan(&seen)
	}))
	assert.Equal(t, "repeatable read on", seen)
	assert.Equal(t, 1, judge.written())
}

func TestLocksOfItsFunctionDoNotLookLikeTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	term := lead(t, a, "a")
	require.NoError(t, postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		return advisory.LockTx(ctx, tx, advisory.TxOptions{}, namespace.Pair(1, 42))
	}))
}
