package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// beginAt begins a transaction that has its snapshot.
func (j judge) beginAt(level pgx.TxIsoLevel) pgx.Tx {
	j.t.Helper()
	tx, err := j.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: level})
	require.NoError(j.t, err)
	j.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(context.Background(), "SELECT count(*) FROM report")
	require.NoError(j.t, err)
	return tx
}

// waits runs what has to wait for a row, and returns when it does. The returned function
// waits for its end.
func (j judge) waits(what func() error) (end func()) {
	j.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- what() }()
	j.rowWaiter()
	return func() {
		j.t.Helper()
		require.NoError(j.t, <-ended)
	}
}

// changeToken renews a lease, and then changes its token by hand while a guarded transaction is under way. The
// change waits for that.
func (j judge) changeToken(s *postgres.Store, c lease.Claim) {
	j.t.Helper()
	_, err := s.Renew(j.t.Context(), lease.RenewRequest{Claim: c, TTL: 2 * ttl})
	require.NoError(j.t, err)
	inFlight := j.begin()
	require.NoError(j.t, postgres.Guard(j.t.Context(), inFlight, c))
	end := j.waits(func() error {
		_, err := j.pool.Exec(context.Background(), `DO $$ BEGIN
			BEGIN PERFORM FROM pglatch_lease.locks WHERE name = '`+c.Name+`' FOR UPDATE; EXCEPTION WHEN division_by_zero THEN NULL; END;
			UPDATE pglatch_lease.locks SET token = token + 1 WHERE name = '`+c.Name+`'; END $$`)
		return err
	})
	require.NoError(j.t, inFlight.Commit(j.t.Context()))
	end()
}

// Without the index a change of the token is none of a key where the row's lock was taken in a
// subtransaction, and the guard passes beside a later lease.
func TestAGuardDependsOnTheIndexOfTheTokens(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	newStore(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience })
	j.exec("CREATE TABLE report (written_by text)")
	for _, indexed := range []bool{true, false} {
		if !indexed { // the control
			j.exec("DROP INDEX pglatch_lease.locks_token")
			j.unguardSnapshots()
		}
		for _, level := range levels[1:] {
			c := acquire(t, s, fmt.Sprint(level, indexed), "a").Claim
			late := j.beginAt(level)
			j.changeToken(s, c)
			err := postgres.Guard(t.Context(), late, c)
			if indexed {
				require.ErrorIs(t, err, lease.ErrStale)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, late.Commit(t.Context()), "a stale write")
		}
	}
}

// unguardSnapshots makes guards take for the present what their snapshot shows.
func (j judge) unguardSnapshots() {
	j.exec(`CREATE OR REPLACE FUNCTION pglatch_lease.guard_snapshot(p_name text, p_holder text, p_id text, p_token bigint) RETURNS bool
		LANGUAGE sql AS 'SELECT false'`)
}

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
