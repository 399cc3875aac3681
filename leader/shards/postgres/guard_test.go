package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
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

func TestAShardIsNotClaimedWhileAGuardedTransactionIsUnderWay(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	judge.Exec(`CREATE TABLE writes (n int)`)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	work, unguarded := bound(t, a, "1"), bound(t, a, "2")
	begin := func(ctx context.Context) pgx.Tx {
		tx, err := judge.Pool.Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		require.NoError(t, write(ctx, tx))
		return tx
	}
	tx, control := begin(work), begin(unguarded)
	require.NoError(t, postgres.Guard(work, tx))
	judge.Terminate(postgres.PIDOf(a))

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
