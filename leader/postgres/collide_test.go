package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// These two have companion keys of one class.
var colliding = [2]namespace.Key{namespace.Pair(1, 29674), namespace.Pair(1, 32989)}

func elects(key namespace.Key) func(*postgres.Config) {
	return func(c *postgres.Config) { c.Key = key }
}

func TestTwoElectionsOfOneClassCostEachOtherNothing(t *testing.T) {
	t.Parallel()
	require.Equal(t, electionkeys.Of(colliding[0].Tag()).ClassID(), electionkeys.Of(colliding[1].Tag()).ClassID())
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, elects(colliding[0])), newJudge(t, dsn)
	b, next := newBackend(t, dsn, elects(colliding[1])), newBackend(t, dsn, elects(colliding[1]))
	judge.table()
	of := lead(t, a, "a")
	inFlight := judge.begin()
	require.NoError(t, postgres.Guard(of, inFlight))

	other := lead(t, b, "b")
	require.NoError(t, postgres.InTx(other, judge.pool, write))
	require.NoError(t, postgres.InTx(of, judge.pool, write))
	release(t, b, "b")
	lead(t, next, "next")
	require.ErrorIs(t, postgres.InTx(other, judge.pool, write), leader.ErrNotLeader, "the control: its own term has ended")
	require.NoError(t, write(t.Context(), inFlight))
	require.NoError(t, inFlight.Commit(t.Context()))
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
	assert.Equal(t, 3, judge.written())
}

// share begins a transaction that shares a lock, as a guard does.
func (j judge) share(tag namespace.Tag) pgx.Tx {
	j.t.Helper()
	tx := j.begin()
	k, _ := tag.Single()
	_, err := tx.Exec(context.Background(), "SELECT pg_advisory_xact_lock_shared($1)", k)
	require.NoError(j.t, err)
	return tx
}

// During a rolling deploy the leader can be of a version whose guards share the lock
// with objid 0.
func TestATakeoverWaitsForTheGuardsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	election := electionkeys.Of(key.Tag())
	tx := judge.share(election.Barrier())
	pending := awaitPending(t, judge, b, "b")
	assert.True(t, pending.Guarded)
	assert.Equal(t, pidOf(t, tx), pending.PID)
	require.NoError(t, tx.Rollback(t.Context()))
	lead(t, b, "b")
}

// A candidate of an earlier version waits until no other session has a lock of the
// class but objid 0, and then takes that.
func TestATakeoverByAnEarlierVersionWaitsForTheGuardsOfThisOne(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	left := func() int {
		return one[int](judge, `SELECT count(*)`+here+fmt.Sprintf(" AND classid::bigint = %d AND objid::bigint <> 0 AND objsubid = 1 AND granted", electionkeys.Of(key.Tag()).ClassID()))
	}
	tx := judge.begin()
	require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
	judge.terminate(judge.holder())
	waitLost(t, a)
	assert.Equal(t, 1, left())
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Zero(t, left())
}

// With elections of one class, guards of an earlier version can be the other's: their
// sessions are not ended.
func TestGuardsOfAnEarlierVersionAreNotEndedWhereAnotherElectionHasTheClass(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{true, false} {
		t.Run(strconv.FormatBool(beside), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			a, judge := newBackend(t, dsn, elects(colliding[0])), newJudge(t, dsn)
			b := newBackend(t, dsn, func(c *postgres.Config) { c.Key, c.GuardTimeout = colliding[1], briefly })
			if beside {
				lead(t, a, "a")
			}
			tx := judge.share(electionkeys.Of(colliding[0].Tag()).Barrier())
			if !beside {
				lead(t, b, "b") // the control: it is taken for a guard of an earlier term, and ended
				require.Error(t, tx.Commit(t.Context()))
				return
			}
			for range 3 {
				awaitPending(t, judge, b, "b")
			}
			require.NoError(t, tx.Commit(t.Context()))
			lead(t, b, "b")
		})
	}
}
