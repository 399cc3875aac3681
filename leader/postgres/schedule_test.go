package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// beginAt begins a transaction that has its snapshot.
func (j judge) beginAt(level pgx.TxIsoLevel) pgx.Tx {
	j.t.Helper()
	tx, err := j.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: level})
	require.NoError(j.t, err)
	j.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(context.Background(), "SELECT count(*) FROM written")
	require.NoError(j.t, err)
	return tx
}

// at begins the transactions of InTx at an isolation level.
type at struct {
	judge
	level pgx.TxIsoLevel
}

func (a at) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	options.IsoLevel = a.level
	return a.pool.BeginTx(ctx, options)
}

// takeovers are the ways in which the term of a ends and b leads, while a transaction of a that
// has its snapshot from before has not guarded yet.
var takeovers = map[string]func(t *testing.T, j judge, term context.Context, a, b *postgres.Backend){
	"a release": func(t *testing.T, _ judge, _ context.Context, a, b *postgres.Backend) {
		t.Helper()
		release(t, a, "a")
		lead(t, b, "b")
	},
	"a release beside a guarded transaction": func(t *testing.T, j judge, term context.Context, a, b *postgres.Backend) {
		t.Helper()
		inFlight := j.begin()
		require.NoError(t, postgres.Guard(term, inFlight))
		release(t, a, "a")
		j.takenAfter(b, inFlight)
	},
	"the end of the session": func(t *testing.T, j judge, _ context.Context, _, b *postgres.Backend) {
		t.Helper()
		j.terminate(j.holder())
		lead(t, b, "b")
	},
	"the end of the session beside a guarded transaction": func(t *testing.T, j judge, term context.Context, _, b *postgres.Backend) {
		t.Helper()
		inFlight := j.begin()
		require.NoError(t, postgres.Guard(term, inFlight))
		j.terminate(j.holder())
		j.takenAfter(b, inFlight)
	},
	"a release, and nobody leads": func(t *testing.T, _ judge, _ context.Context, a, _ *postgres.Backend) {
		t.Helper()
		release(t, a, "a")
	},
	"two terms of others": func(t *testing.T, _ judge, _ context.Context, a, b *postgres.Backend) {
		t.Helper()
		release(t, a, "a")
		lead(t, b, "b")
		release(t, b, "b")
		lead(t, a, "a")
	},
}

// takenAfter has b lead as soon as a transaction, which it waits for, has committed.
func (j judge) takenAfter(b *postgres.Backend, inFlight pgx.Tx) {
	j.t.Helper()
	led := make(chan struct{})
	go func() {
		defer close(led)
		lead(j.t, b, "b")
	}()
	j.queued()
	require.NoError(j.t, write(context.Background(), inFlight))
	select {
	case <-led:
		require.Fail(j.t, "somebody leads beside a guarded transaction")
	default:
	}
	require.NoError(j.t, inFlight.Commit(context.Background()))
	<-led
}

func TestAGuardThatComesLateRefusesATermThatHasEndedInEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for how, end := range takeovers {
		for _, level := range levels {
			t.Run(how+", "+string(level), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				a, b, j := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
				j.table()
				term := lead(t, a, "a")
				late, between, bare := j.beginAt(level), j.beginAt(level), newJudge(t, dsn).beginAt(level) // a pool has four
				require.NoError(t, postgres.InTx(term, at{j, level}, write))
				end(t, j, term, a, b)
				if level != pgx.Serializable { // whose transactions can fail among themselves
					require.NoError(t, errors.Join(write(t.Context(), bare), bare.Commit(t.Context())), "the control: without a guard")
				}
				before := j.written()
				requireRefused(t, late, postgres.Guard(term, late))
				savepoint, err := between.Begin(t.Context())
				require.NoError(t, err)
				require.ErrorIs(t, postgres.Guard(term, savepoint), leader.ErrNotLeader)
				require.ErrorIs(t, postgres.InTx(term, at{j, level}, write), leader.ErrNotLeader)
				assert.Equal(t, before, j.written())
			})
		}
	}
}

func TestInTxRefusesATermThatEndsBetweenItsTwoGuardsInEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			a, b, j := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
			j.table()
			term := lead(t, a, "a")
			// The work keeps the barrier, so nobody leads before it has ended; its term has, so it is refused.
			err := postgres.InTx(term, at{j, level}, func(ctx context.Context, tx pgx.Tx) error {
				j.terminate(j.holder())
				awaitPending(t, j, b, "b")
				return write(ctx, tx)
			})
			require.ErrorIs(t, err, leader.ErrNotLeader)
			assert.Zero(t, j.written())
			lead(t, b, "b")
		})
	}
}

func TestSavepointsKeepAGuardWhenTheyAreReleasedAndGiveItBackWhenTheyAreRolledBack(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			a, j := newBackend(t, dsn, nil), newJudge(t, dsn)
			j.table()
			term := lead(t, a, "a")
			alone := j.locks()
			tx := j.beginAt(level)
			for range 2 { // a second guard of a transaction adds nothing
				savepoint, err := tx.Begin(t.Context())
				require.NoError(t, err)
				require.NoError(t, postgres.Guard(term, savepoint))
				require.NoError(t, savepoint.Commit(t.Context()))
				assert.Equal(t, alone+1, j.locks())
			}
			require.NoError(t, tx.Rollback(t.Context()))

			tx = j.beginAt(level)
			savepoint, err := tx.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, postgres.Guard(term, savepoint))
			require.NoError(t, savepoint.Rollback(t.Context()))
			assert.Equal(t, alone, j.locks(), "nothing is guarded")
			release(t, a, "a")
			requireRefused(t, tx, postgres.Guard(term, tx))
		})
	}
}

func TestTwoTransactionsAndTwoElectionsAreGuardedEachForItself(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	other := func(c *postgres.Config) { c.Key = namespace.Pair(1, 101) }
	a, b, j := newBackend(t, dsn, nil), newBackend(t, dsn, other), newJudge(t, dsn)
	j.table()
	first, second := lead(t, a, "a"), lead(t, b, "b")
	for _, level := range levels {
		tx, one := j.beginAt(level), j.beginAt(level)
		require.NoError(t, errors.Join(postgres.Guard(first, tx), postgres.Guard(second, tx), postgres.Guard(first, one)))
		require.NoError(t, errors.Join(write(t.Context(), tx), tx.Commit(t.Context())))
		require.NoError(t, one.Commit(t.Context()))
	}
	release(t, b, "b")
	for _, level := range levels {
		tx := j.beginAt(level)
		require.NoError(t, postgres.Guard(first, tx))
		requireRefused(t, tx, postgres.Guard(second, tx))
	}
	assert.Equal(t, len(levels), j.written())
}
