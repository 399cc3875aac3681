package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

// inAnother runs a tick, in the work of another, that does not end well.
var inAnother = map[string]func(t *testing.T, tx pgx.Tx, tick time.Time){
	"fails": func(t *testing.T, tx pgx.Tx, tick time.Time) {
		t.Helper()
		_, err := postgres.DoTx(t.Context(), tx, "inner", tick, func(context.Context) error { return errNoPaper })
		require.ErrorIs(t, err, errNoPaper)
	},
	"is taken": func(t *testing.T, tx pgx.Tx, tick time.Time) {
		t.Helper()
		result, err := postgres.DoTx(t.Context(), tx, "outer", tick, nothing)
		require.NoError(t, err)
		require.False(t, result.Did)
	},
	"is too old": func(t *testing.T, tx pgx.Tx, tick time.Time) {
		t.Helper()
		_, err := postgres.DoTx(t.Context(), tx, "inner", tick.Add(-2*once.DefaultWindow), nothing)
		require.ErrorIs(t, err, once.ErrWindow)
	},
	"aborts the transaction": func(t *testing.T, tx pgx.Tx, tick time.Time) {
		t.Helper()
		_, err := tx.Exec(t.Context(), "SELECT 1/0")
		require.Error(t, err)
		_, err = postgres.DoTx(t.Context(), tx, "inner", tick, nothing)
		require.Error(t, err)
	},
	"finds no table": func(t *testing.T, tx pgx.Tx, tick time.Time) {
		t.Helper()
		o := postgres.Options{Table: "pglatch_elsewhere"}
		_, err := o.DoTx(t.Context(), tx, "inner", tick, nothing)
		require.ErrorIs(t, err, once.ErrNotReady)
	},
}

var errNoPaper = errors.New("no paper")

func TestWorkThatFailsIsUndoneWhateverItDidWithAnotherTick(t *testing.T) {
	t.Parallel()
	for name, inner := range inAnother {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
				t.Helper()
				tick, tx := thisMinute(), begin()
				result, err := postgres.DoTx(t.Context(), tx, "outer", tick, func(ctx context.Context) error {
					require.NoError(t, work(tx, "outer")(ctx))
					inner(t, tx, tick)
					return errNoPaper
				})
				require.ErrorIs(t, err, errNoPaper)
				require.Equal(t, once.Open, result.State)
				require.NoError(t, tx.Commit(t.Context()))
				assert.Zero(t, done(t, pool), "what it did")
				assert.Zero(t, dbtest.One[int](t, pool, "SELECT count(*) FROM pglatch_once"), "its claim")
			})
		})
	}
}

func TestATransactionThatFindsATickTakenIsInNobodysWay(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		store, err := postgres.New(postgres.Config{Pool: pool})
		require.NoError(t, err)
		tick := thisMinute()
		run, err := newRunner(t, once.Config{Store: store, Node: "a"}).Claim(t.Context(), "report", tick)
		require.NoError(t, err)
		result, err := postgres.DoTx(t.Context(), begin(), "report", tick, nothing)
		require.NoError(t, err)
		require.Equal(t, []any{false, once.Running, "a"}, []any{result.Did, result.State, result.Node})

		// That transaction is still open.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = store.Renew(ctx, run.Claim(), once.DefaultTTL)
		require.NoError(t, err, "the run goes on")
		record, err := run.End(errNoPaper)
		require.ErrorIs(t, err, errNoPaper)
		require.NotErrorIs(t, err, once.ErrLost)
		require.Equal(t, once.Failed, record.State)
		again, err := newRunner(t, once.Config{Store: store, Node: "b"}).Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{once.Failed, "a"}, []any{again.State, again.Node})
	})
}
