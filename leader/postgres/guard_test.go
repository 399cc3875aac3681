package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// table makes a table to write to.
func (j judge) table() { j.exec("CREATE TABLE written (what text)") }

func (j judge) written() int { return one[int](j, "SELECT count(*) FROM written") }

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO written VALUES ('x')")
	return err
}

// requireRefused says that a guard refused, and that the transaction is aborted.
func requireRefused(t *testing.T, tx pgx.Tx, err error) *postgres.NotLeaderError {
	t.Helper()
	require.ErrorIs(t, err, leader.ErrNotLeader)
	var refusal *postgres.NotLeaderError
	require.ErrorAs(t, err, &refusal)
	var aborted *pgconn.PgError
	require.ErrorAs(t, write(context.Background(), tx), &aborted)
	require.Equal(t, "25P02", aborted.Code)
	require.ErrorIs(t, tx.Commit(context.Background()), pgx.ErrTxCommitRollback)
	return refusal
}

func TestARefusalSaysWhichTermHasEndedAndWhy(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	tx := judge.begin()
	require.ErrorContains(t, requireRefused(t, tx, postgres.Guard(t.Context(), tx)), "the one that the election gives")
	require.ErrorContains(t, postgres.InTx(t.Context(), judge.pool, write), "the one that the election gives")
	tx = judge.begin()
	requireRefused(t, tx, postgres.Guard(a.Bind(t.Context()), tx)) // it never led
	require.ErrorIs(t, postgres.Guard(t.Context(), nil), postgres.ErrNoTransaction)

	term := lead(t, a, "a")
	for _, cause := range []error{&leader.LostError{Cause: errors.New("gone")}, leader.ErrReleased} {
		ctx, cancel := context.WithCancelCause(term)
		cancel(cause)
		tx = judge.begin()
		require.ErrorIs(t, requireRefused(t, tx, postgres.Guard(ctx, tx)), cause)
		require.ErrorIs(t, postgres.InTx(ctx, judge.pool, write), cause, "it cannot even begin")
	}
	require.ErrorContains(t, postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }), "guarded transaction of 1:100 in term 1.1")
	release(t, a, "a")
	tx = judge.begin()
	refusal := requireRefused(t, tx, postgres.Guard(term, tx))
	assert.Equal(t, leader.Term{Era: 1, N: 1}, refusal.Term)
	assert.Equal(t, "1:100", refusal.Election)
	assert.Zero(t, judge.locks(), "guards leave nothing")
}

func TestAGuardBoundsTheIdlenessOfItsTransactionAndKeepsAShorterBound(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	term := lead(t, a, "a")
	for before, want := range map[string]string{
		"0": "1min", "10s": "10s", "59999": "59999ms", "1min": "1min", "61s": "1min", "2h": "1min", "1d": "1min",
	} {
		tx := judge.begin()
		_, err := tx.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+before+"'")
		require.NoError(t, err)
		var after string
		require.NoError(t, postgres.Guard(term, tx))
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&after))
		assert.Equal(t, want, after, "it was %s", before)
		require.NoError(t, tx.Rollback(t.Context()))
	}

	// A leader that stops inside a guarded transaction does not hold a takeover up for ever.
	release(t, a, "a")
	b := newBackend(t, dsn, nil)
	won, err := b.TryAcquire(t.Context(), "b", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	tx := judge.begin()
	require.NoError(t, postgres.Guard(b.Bind(t.Context()), tx))
	judge.terminate(judge.holder())
	lead(t, a, "a")
	require.Error(t, tx.Commit(t.Context()))
}
