package postgres_test

import (
	"testing"

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
	inFlight := judge.Begin()
	require.NoError(t, postgres.Guard(of, inFlight))

	other := lead(t, b, "b")
	require.NoError(t, postgres.InTx(other, judge.Pool, write))
	require.NoError(t, postgres.InTx(of, judge.Pool, write))
	release(t, b, "b")
	lead(t, next, "next")
	require.ErrorIs(t, postgres.InTx(other, judge.Pool, write), leader.ErrNotLeader, "the control: its own term has ended")
	require.NoError(t, write(t.Context(), inFlight))
	require.NoError(t, inFlight.Commit(t.Context()))
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
	assert.Equal(t, 3, judge.written())
}
