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
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

func nothing(context.Context) error { return nil }

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// inEveryLevel runs a test in a database with a table of what was done.
func inEveryLevel(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx)) {
	t.Helper()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			newStore(t, dsn)
			pool := dbtest.Pool(t, dsn+"&pool_max_conns=8")
			dbtest.Exec(t, pool, "CREATE TABLE done (who text)")
			test(t, pool, func() pgx.Tx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				return tx
			})
		})
	}
}

// work notes in the transaction who did something.
func work(tx pgx.Tx, who string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := tx.Exec(ctx, "INSERT INTO done VALUES ($1)", who)
		return err
	}
}

func done(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	return dbtest.One[int](t, pool, "SELECT count(*) FROM done")
}

func TestANilFunctionRunsInNoTransaction(t *testing.T) {
	t.Parallel()
	_, err := postgres.DoTx(t.Context(), nil, "report", thisMinute(), nil)
	require.ErrorIs(t, err, once.ErrInvalid)
	_, err = postgres.DoSQLTx(t.Context(), nil, "report", thisMinute(), nil)
	require.ErrorIs(t, err, once.ErrInvalid)
}

func TestThatATickRanAndWhatItDidAreCommittedTogether(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		tick := thisMinute()
		first := begin()
		result, err := postgres.DoTx(t.Context(), first, "report", tick, func(ctx context.Context) error {
			c, ok := once.ClaimOf(ctx)
			assert.True(t, ok)
			assert.Equal(t, "report", c.Job)
			return work(first, "a")(ctx)
		})
		require.NoError(t, err)
		require.True(t, result.Did)
		require.NoError(t, first.Rollback(t.Context()))
		assert.Zero(t, done(t, pool))

		second := begin()
		result, err = postgres.DoTx(t.Context(), second, "report", tick, work(second, "b"))
		require.NoError(t, err)
		require.True(t, result.Did, "the first one was rolled back")
		require.NoError(t, second.Commit(t.Context()))
		assert.Equal(t, 1, done(t, pool))

		third := begin()
		result, err = postgres.DoTx(t.Context(), third, "report", tick, work(third, "c"))
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Ran}, []any{result.Did, result.State})
		require.NoError(t, third.Commit(t.Context()))
		assert.Equal(t, 1, done(t, pool))
	})
}

func TestWhoComesWhileATransactionIsOpenNeitherBlocksNorRunsTheTick(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		tick := thisMinute()
		first := begin()
		result, err := postgres.DoTx(t.Context(), first, "report", tick, func(ctx context.Context) error {
			second := begin()
			result, err := postgres.DoTx(ctx, second, "report", tick, work(second, "b"))
			assert.NoError(t, err)
			assert.Equal(t, []any{false, once.Running}, []any{result.Did, result.State})
			assert.NoError(t, second.Commit(ctx))
			return work(first, "a")(ctx)
		})
		require.NoError(t, err)
		require.True(t, result.Did)

		store := newStore(t, pool.Config().ConnString())
		runner := newRunner(t, once.Config{Store: store})
		result, err = runner.Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Running}, []any{result.Did, result.State}, "a Runner does not block either")

		require.NoError(t, first.Commit(t.Context()))
		result, err = runner.Do(t.Context(), "report", tick, nothing)
		require.NoError(t, err)
		assert.Equal(t, []any{false, once.Ran}, []any{result.Did, result.State})
		assert.Equal(t, 1, done(t, pool))
	})
}

func TestASnapshotThatIsOlderThanAnothersRunIsNoSecondRun(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		now := thisMinute()
		for i, known := range []bool{false, true} { // whether the snapshot has an older row of the tick
			tick := now.Add(-time.Duration(i) * time.Minute)
			if known {
				store := newStore(t, pool.Config().ConnString())
				c, err := store.Claim(t.Context(), once.Request{Job: "report", Tick: tick, Node: "x", TTL: time.Minute, Window: time.Hour, Early: time.Minute})
				require.NoError(t, err)
				require.NoError(t, store.End(t.Context(), c, once.Open))
			}
			old := begin()
			_, err := old.Exec(t.Context(), "SELECT count(*) FROM done") // takes the snapshot
			require.NoError(t, err)
			first := begin()
			result, err := postgres.DoTx(t.Context(), first, "report", tick, work(first, "a"))
			require.NoError(t, err)
			require.True(t, result.Did)
			require.NoError(t, first.Commit(t.Context()))

			ran := false
			result, err = postgres.DoTx(t.Context(), old, "report", tick, func(context.Context) error { ran = true; return nil })
			assert.False(t, ran)
			assert.False(t, result.Did)
			if t.Name()[len(t.Name())-len("committed"):] == "committed" {
				require.NoError(t, err)
				assert.Equal(t, once.Ran, result.State)
				require.NoError(t, old.Commit(t.Context()))
				continue
			}
			require.ErrorIs(t, err, once.ErrBusy)
			require.ErrorContains(t, err, "could not serialize")
			require.NoError(t, old.Rollback(t.Context()))
			again := begin()
			result, err = postgres.DoTx(t.Context(), again, "report", tick, nothing)
			require.NoError(t, err)
			assert.Equal(t, once.Ran, result.State)
			require.NoError(t, again.Commit(t.Context()))
		}
		assert.Equal(t, 2, done(t, pool))
	})
}

// The control: a look at the table and a note in it, in one transaction, is a second run.
func TestWithoutTheClaimAnOldSnapshotIsASecondRun(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		a, b := begin(), begin()
		for who, tx := range map[string]pgx.Tx{"a": a, "b": b} {
			var n int
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pglatch_once WHERE job = 'report'").Scan(&n))
			require.Zero(t, n)
			require.NoError(t, work(tx, who)(t.Context()))
		}
		require.NoError(t, a.Commit(t.Context()))
		if err := b.Commit(t.Context()); err != nil {
			require.ErrorContains(t, err, "could not serialize", "in serializable it is one")
		}
		assert.LessOrEqual(t, 1, done(t, pool))
		if t.Name()[len(t.Name())-len("serializable"):] != "serializable" {
			assert.Equal(t, 2, done(t, pool))
		}
	})
}

func TestWorkThatFailsIsUndoneWithTheClaimAndTheRestCanCommit(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		cause := errors.New("no paper")
		for name, fail := range map[string]func(tx pgx.Tx) func(context.Context) error{
			"an error": func(pgx.Tx) func(context.Context) error { return func(context.Context) error { return cause } },
			"an error of the server": func(tx pgx.Tx) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := tx.Exec(ctx, "SELECT 1/0")
					return errors.Join(cause, err)
				}
			},
		} {
			tx := begin()
			require.NoError(t, work(tx, "before")(t.Context()))
			result, err := postgres.DoTx(t.Context(), tx, name, thisMinute(), func(ctx context.Context) error {
				require.NoError(t, work(tx, "undone")(ctx))
				return fail(tx)(ctx)
			})
			require.ErrorIs(t, err, cause)
			assert.Equal(t, []any{true, once.Open}, []any{result.Did, result.State})
			require.NoError(t, tx.Commit(t.Context()))
		}
		assert.Equal(t, 2, done(t, pool))
		assert.Zero(t, dbtest.One[int](t, pool, "SELECT count(*) FROM pglatch_once"))

		tx := begin()
		assert.PanicsWithValue(t, "stop", func() {
			_, _ = postgres.DoTx(t.Context(), tx, "panic", thisMinute(), func(context.Context) error { panic("stop") })
		})
		require.NoError(t, tx.Commit(t.Context()))
		assert.Zero(t, dbtest.One[int](t, pool, "SELECT count(*) FROM pglatch_once"))
	})
}

func TestATransactionRefusesWhatIsOutOfTheWindowAndGoesOn(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		tx := begin()
		for _, tick := range []time.Time{time.Now().Add(-2 * time.Hour), time.Now().Add(time.Hour)} {
			_, err := postgres.DoTx(t.Context(), tx, "report", tick, nothing)
			require.ErrorIs(t, err, once.ErrWindow)
		}
		_, err := postgres.Options{Window: postgres.Keeps + 1}.DoTx(t.Context(), tx, "report", thisMinute(), nothing)
		require.ErrorIs(t, err, once.ErrInvalid)
		_, err = postgres.Options{Table: "a b"}.DoTx(t.Context(), tx, "report", thisMinute(), nothing)
		require.ErrorIs(t, err, once.ErrInvalid)
		result, err := postgres.Options{Window: 3 * time.Hour, Node: "n"}.DoTx(t.Context(), tx, "report", time.Now().Add(-2*time.Hour), work(tx, "a"))
		require.NoError(t, err)
		assert.Equal(t, []any{true, "n"}, []any{result.Did, result.Node})
		require.NoError(t, tx.Commit(t.Context()))
		assert.Equal(t, 1, done(t, pool))
	})
}

// The session ends in the middle of the work: neither that the tick ran nor what it did is there.
func TestASessionThatDiesInTheTransactionGivesTheTickBack(t *testing.T) {
	t.Parallel()
	inEveryLevel(t, func(t *testing.T, pool *pgxpool.Pool, begin func() pgx.Tx) {
		t.Helper()
		tx, tick := begin(), thisMinute()
		_, err := postgres.DoTx(t.Context(), tx, "report", tick, func(ctx context.Context) error {
			if err := work(tx, "a")(ctx); err != nil {
				return err
			}
			dbtest.Exec(t, pool, "SELECT pg_terminate_backend($1, 20000)", tx.Conn().PgConn().PID())
			return work(tx, "a")(ctx)
		})
		require.Error(t, err)
		require.Error(t, tx.Commit(t.Context()))
		next := begin()
		result, err := postgres.DoTx(t.Context(), next, "report", tick, work(next, "b"))
		require.NoError(t, err)
		require.True(t, result.Did)
		require.NoError(t, next.Commit(t.Context()))
		assert.Equal(t, 1, done(t, pool))
	})
}

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
