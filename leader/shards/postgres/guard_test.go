package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// bound claims one shard and returns the context of its work.
func bound(tb testing.TB, s driver.Session, name string) context.Context {
	tb.Helper()
	grants, err := s.Claim(tb.Context(), []string{name})
	require.NoError(tb, err)
	require.Len(tb, grants, 1)
	return s.(driver.Binder).Bind(tb.Context(), grants[0])
}

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO writes VALUES (1)`)
	return err
}

func (j judge) written() int {
	j.t.Helper()
	return one[int](j, `SELECT count(*) FROM writes`)
}

func TestAStaleGuardedWriteIsRefused(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]pgx.TxIsoLevel{"read committed": pgx.ReadCommitted, "repeatable read": pgx.RepeatableRead, "serializable": pgx.Serializable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			judge := newJudge(t, dsn)
			judge.exec(`CREATE TABLE writes (n int)`)
			a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
			options := pgx.TxOptions{IsoLevel: level}
			first := bound(t, a, "1")
			require.NoError(t, postgres.InTxOptions(first, judge.pool, options, write))
			begun, err := judge.pool.BeginTx(t.Context(), options)
			require.NoError(t, err)
			defer func() { _ = begun.Rollback(context.Background()) }()
			require.NoError(t, write(t.Context(), begun), "its snapshot is of now")

			judge.terminate(postgres.PIDOf(a))
			second := bound(t, b, "1")
			err = postgres.InTxOptions(first, judge.pool, options, write)
			require.ErrorIs(t, err, leader.ErrNotLeader)
			require.ErrorContains(t, err, "shard 1 of tenant=7")
			require.Error(t, postgres.Guard(first, begun))
			require.Error(t, begun.Commit(t.Context()))
			require.NoError(t, postgres.InTxOptions(second, judge.pool, options, write))
			assert.Equal(t, 2, judge.written())

			other := bound(t, b, "2")
			release(t, b, "1")
			third := bound(t, b, "1")
			require.ErrorIs(t, postgres.InTxOptions(second, judge.pool, options, write), leader.ErrNotLeader, "of an earlier term of the same session")
			require.NoError(t, postgres.InTxOptions(third, judge.pool, options, write))
			require.NoError(t, postgres.InTxOptions(other, judge.pool, options, write))
			require.NoError(t, pgx.BeginTxFunc(first, judge.pool, options, func(tx pgx.Tx) error { return write(first, tx) }), "the control, without a guard")
			assert.Equal(t, 5, judge.written())
		})
	}
}

func TestAShardIsNotClaimedWhileAGuardedTransactionIsUnderWay(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	judge.exec(`CREATE TABLE writes (n int)`)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	work, unguarded := bound(t, a, "1"), bound(t, a, "2")
	begin := func(ctx context.Context) pgx.Tx {
		tx, err := judge.pool.Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		require.NoError(t, write(ctx, tx))
		return tx
	}
	tx, control := begin(work), begin(unguarded)
	require.NoError(t, postgres.Guard(work, tx))
	judge.terminate(postgres.PIDOf(a))

	got := claim(t, b, "1", "2", "3")
	assert.NotContains(t, got, "1")
	assert.Contains(t, got, "2", "the control: its transaction has no guard")
	assert.Contains(t, got, "3", "others need not wait")
	_, err := b.Claim(t.Context(), []string{"1"})
	var guarded *postgres.GuardedError
	require.ErrorAs(t, err, &guarded)
	assert.Equal(t, []string{"1"}, guarded.Shards)
	assert.Equal(t, 2, judge.locks(), "its lock was given back")

	require.NoError(t, tx.Commit(t.Context()), "before the next term")
	assert.Contains(t, claim(t, b, "1"), "1")
	require.NoError(t, control.Commit(t.Context()), "after the next term has begun")
}

// The other database has a group of the same name, whose shard is in a term of the same number.
func TestAGuardOnAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	here, there := pgtest.DSN(t), pgtest.DSN(t)
	work := bound(t, open(t, newBackend(t, here, nil), "a"), "1")
	other := bound(t, open(t, newBackend(t, there, nil), "a"), "1")
	judge := newJudge(t, there)
	judge.exec(`CREATE TABLE writes (n int)`)
	require.Equal(t, 1, one[int](judge, `SELECT n FROM pglatch_shard`))
	require.ErrorIs(t, postgres.InTx(work, judge.pool, write), leader.ErrNotLeader)
	assert.Zero(t, judge.written())
	require.NoError(t, postgres.InTx(other, judge.pool, write), "the control")
}

func TestAGuardInAReadOnlyTransactionSaysSo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	work := bound(t, open(t, newBackend(t, dsn, nil), "a"), "1")
	readOnly := pgx.TxOptions{AccessMode: pgx.ReadOnly}
	tx, err := judge.pool.BeginTx(t.Context(), readOnly)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for name, err := range map[string]error{
		"Guard": postgres.Guard(work, tx),
		"InTxOptions": postgres.InTxOptions(work, judge.pool, readOnly, func(context.Context, pgx.Tx) error {
			t.Error("it ran")
			return nil
		}),
	} {
		require.ErrorIs(t, err, postgres.ErrReadOnly, name)
		require.NotErrorIs(t, err, leader.ErrNotLeader, "it leads")
		require.ErrorContains(t, err, "shard 1 of tenant=7: the transaction is read-only")
		require.ErrorContains(t, err, "begin it READ WRITE, on the primary")
	}

	err = postgres.InTx(work, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
		return err
	})
	require.ErrorIs(t, err, postgres.ErrReadOnly, "the second guard locks the row again")
	require.NoError(t, postgres.InTx(work, judge.pool, func(context.Context, pgx.Tx) error { return nil }), "the control")
}
