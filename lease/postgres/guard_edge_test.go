package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// A snapshot that is older than the claim shows the name's lease before, or none.
func TestAGuardInATransactionThatBeganBeforeTheClaimIsTriedAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.exec("CREATE TABLE report (written_by text)")
	cycle(t, s, "known")
	cycle(t, s, "forgotten")
	old := acquire(t, s, "gone", "a").Claim
	j.expire("gone")
	_, err := s.Sweep(t.Context(), lease.SweepRequest{Retention: 1})
	require.NoError(t, err)
	cycle(t, s, "known")
	for _, level := range levels {
		for _, name := range []string{"known", "new " + string(level), "forgotten"} {
			tx := j.beginAt(level)
			claim := acquire(t, s, name, "a").Claim
			err := postgres.Guard(t.Context(), tx, claim)
			if level == pgx.ReadCommitted {
				require.NoError(t, err, name)
			} else {
				assert.IsType(t, &lease.BusyError{}, errors.Unwrap(err), "%s: %v", name, err)
			}
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, j.guardOnce(level, claim), "tried again")
			require.NoError(t, s.Release(t.Context(), claim))
		}
		// What was forgotten before the snapshot is certain.
		assert.Equal(t, &lease.NotFoundError{Name: "gone"}, j.guardOnce(level, old))
	}
}

// guardOnce guards a transaction that has its snapshot, and ends it.
func (j judge) guardOnce(level pgx.TxIsoLevel, c lease.Claim) error {
	j.t.Helper()
	tx := j.beginAt(level)
	defer func() { _ = tx.Rollback(context.Background()) }()
	return postgres.Guard(context.Background(), tx, c)
}

func TestARollbackToASavepointTakesAGuardBackAndARepetitionTells(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.exec("CREATE TABLE report (written_by text)")
	for _, level := range levels {
		name := string(level)
		a := acquire(t, s, name, "a").Claim
		tx := j.beginAt(level)
		savepoint, err := tx.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, postgres.Guard(t.Context(), savepoint, a))
		require.NoError(t, savepoint.Commit(t.Context()), "a savepoint that is released keeps the guard")
		require.NoError(t, s.Release(t.Context(), a))
		hasty := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 1e6 })
		_, err = hasty.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "b", TTL: ttl})
		require.ErrorIs(t, err, lease.ErrBusy)
		require.NoError(t, tx.Rollback(t.Context()))

		a = acquire(t, s, name, "a").Claim
		tx = j.beginAt(level)
		savepoint, err = tx.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, postgres.Guard(t.Context(), savepoint, a))
		require.NoError(t, savepoint.Rollback(t.Context()))
		require.NoError(t, s.Release(t.Context(), a))
		acquire(t, s, name, "b") // it waits for nothing
		err = postgres.Guard(t.Context(), tx, a)
		require.ErrorIs(t, err, lease.ErrStale, "%s: %v", level, err)
		require.Error(t, tx.Commit(t.Context()))
	}
}

func TestAPreparedTransactionKeepsItsGuard(t *testing.T) {
	t.Parallel()
	dsn := startServer(t, map[string]string{"max_prepared_transactions": "5"}).DSN("")
	s, j := newStore(t, dsn), newJudge(t, dsn)
	hasty := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 1e6 })
	j.exec("CREATE TABLE report (written_by text)")
	for _, level := range levels {
		name := string(level)
		a := acquire(t, s, name, "a").Claim
		tx := j.beginAt(level)
		require.NoError(t, postgres.Guard(t.Context(), tx, a))
		_, err := tx.Exec(t.Context(), "INSERT INTO report VALUES ($1)", name)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "PREPARE TRANSACTION 'later'")
		require.NoError(t, err)
		_ = tx.Rollback(t.Context()) // of nothing: the session is in no transaction
		require.NoError(t, s.Release(t.Context(), a))
		for range 3 {
			_, err = hasty.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "b", TTL: ttl})
			require.ErrorIs(t, err, lease.ErrBusy)
		}
		j.exec("COMMIT PREPARED 'later'")
		acquire(t, s, name, "b")
		assert.Equal(t, 1, one[int](j, "SELECT count(*) FROM report WHERE written_by = $1", name))
	}
}

func TestAGuardInAReadOnlyTransactionSaysSo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	a := acquire(t, s, "x", "a").Claim
	tx, err := j.pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	err = postgres.Guard(t.Context(), tx, a)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "the transaction is read-only: begin it READ WRITE")
	assert.NotContains(t, err.Error(), "standby")
}

// Two guards of leases in one transaction are two locks; which of them fails does not matter.
func TestATransactionCanBeGuardedByTwoLeases(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.exec("CREATE TABLE report (written_by text)")
	for _, level := range levels {
		a, b := acquire(t, s, "a"+string(level), "h").Claim, acquire(t, s, "b"+string(level), "h").Claim
		tx := j.beginAt(level)
		require.NoError(t, postgres.Guard(t.Context(), tx, a))
		require.NoError(t, s.Release(t.Context(), b))
		acquire(t, s, b.Name, "other")
		require.ErrorIs(t, postgres.Guard(t.Context(), tx, b), lease.ErrStale)
		require.Error(t, tx.Commit(t.Context()))
		require.NoError(t, s.Release(t.Context(), a))
		acquire(t, s, a.Name, "other")
	}
}

// The other database has a lease of the same name, holder and token.
func TestAGuardOnAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	here, there := pgtest.DSN(t), pgtest.DSN(t)
	a, b := acquire(t, newStore(t, here), "job", "a").Claim, acquire(t, newStore(t, there), "job", "a").Claim
	require.Equal(t, a.Token, b.Token)
	j := newJudge(t, there)
	require.Equal(t, &lease.StaleError{Name: "job", ID: true}, postgres.Guard(t.Context(), j.begin(), a))
	require.NoError(t, postgres.Guard(t.Context(), j.begin(), b), "the control")
}
