package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/oncetest"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newStore returns a store on the database, with its table.
func newStore(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(postgres.Config{DSN: dsn, CreateTable: true})
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	require.NoError(tb, s.Migrate(tb.Context()))
	return s
}

func newRunner(tb testing.TB, c once.Config) *once.Runner {
	tb.Helper()
	r, err := once.New(c)
	require.NoError(tb, err)
	return r
}

// thisMinute is a tick.
func thisMinute() time.Time { return once.Normal(time.Now().Truncate(time.Minute)) }

// conforms runs the suite in one database, in which each store has a table.
func conforms(t *testing.T, parameters string) {
	t.Helper()
	pool := dbtest.Pool(t, pgtest.DSN(t)+"&pool_max_conns=10&"+parameters)
	var tables atomic.Int32
	oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store {
		t.Helper()
		s, err := postgres.New(postgres.Config{Pool: pool, Table: fmt.Sprintf("ticks%d", tables.Add(1)), CreateTable: true})
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		return s
	}})
}

func TestPostgresConformsToTheContract(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "exec" {
				pgtest.Long(t)
			}
			conforms(t, "default_query_exec_mode="+mode)
		})
	}
}

// A role or a database may have another isolation level by default, and a session the strangest settings.
func TestPostgresConformsWhateverTheDefaultsAre(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	conforms(t, "default_query_exec_mode=exec&options=-c%20default_transaction_isolation%3Dserializable%20-c%20synchronous_commit%3Doff"+
		"%20-c%20timezone%3DAsia/Kathmandu%20-c%20datestyle%3DSQL,DMY%20-c%20intervalstyle%3Dsql_standard")
}

func TestTheTableOfTicksIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema("")))
}

var errTaken = errors.New("the tick is taken")

// DoTx is a guard whose right is to run a tick. The right ends when another transaction has run the tick, and the
// next tick is the next right.
func TestTicksInTransactionsStandAllAttacks(t *testing.T) {
	t.Parallel()
	const (
		callers = "DoTx is called in a transaction that its caller commits"
		free    = "a tick that ended before the claim is free to others, and nobody waits for it"
	)
	guardtest.Run(t, guardtest.Guard{
		Open: openTicks, Ended: errTaken, Keeps: true, NoLimits: true, ReadOnly: true, Names: 10, Elsewhere: "the table public.pglatch_once is not there",
		Cannot: map[string]string{
			"a takeover between the statements of a guard": free,
			"another database with the same rights":        "a tick is a job and a time, and each database has its own table of them",
			"events that a right outlives":                 "a tick has no record before it is claimed",
			"writers that ignore the end of their right":   "the run of one tick may follow that of a later one",
			"the number of statements":                     "DoTx also sets a savepoint, so that the work can be undone",
			"InTx: options":                                callers,
			"InTx: errors and panics":                      callers,
			"InTx: a function that ends the transaction":   callers,
			"InTx: a right that ends between the guards":   callers,
			"InTx: guards and locks in the function":       callers,
		},
	})
}

// ticks are the ticks of one job.
type ticks struct {
	pool *pgxpool.Pool
	job  string
	tick time.Time // zero = none has begun
}

func openTicks(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	newStore(tb, dsn)
	return &ticks{pool: dbtest.Pool(tb, dsn), job: guardtest.OddName + fmt.Sprint(number)}
}

// run runs a tick in a transaction of another node, unless it is taken.
func (s *ticks) run(tb testing.TB, tick time.Time) (result once.Result) {
	tb.Helper()
	require.NoError(tb, pgx.BeginFunc(context.WithoutCancel(tb.Context()), s.pool, func(tx pgx.Tx) (err error) {
		result, err = options.DoTx(context.WithoutCancel(tb.Context()), tx, s.job, tick, nothing)
		return err
	}))
	return result
}

var options = postgres.Options{Window: 24 * time.Hour}

func (s *ticks) Begin(tb testing.TB, _ string) guardtest.Right {
	tb.Helper()
	if s.tick.IsZero() {
		s.tick = thisMinute()
	} else {
		await.Until(tb, await.Soon, func() bool { return s.run(tb, s.tick).State == once.Ran })
		s.tick = s.tick.Add(-time.Minute)
	}
	tick, did := s.tick, map[any]bool{}
	refused := func(tx any, result once.Result, err error) error {
		switch {
		case err != nil:
			return err
		case !result.Did && !did[tx]:
			return errTaken
		}
		did[tx] = result.Did // once more in the same transaction, it finds its own run
		return nil
	}
	return guardtest.Right{
		Functions: guardtest.Functions{
			Guard: func(ctx context.Context, tx postgres.PgxTx) error {
				result, err := options.DoTx(ctx, tx, s.job, tick, nothing)
				return refused(tx, result, err)
			},
			GuardSQL: func(ctx context.Context, tx postgres.SQLTx) error {
				result, err := options.DoSQLTx(ctx, tx, s.job, tick, nothing)
				return refused(tx, result, err)
			},
		},
		Ends: map[string]guardtest.End{"a release": {Do: func(tb testing.TB) {
			tb.Helper()
			s.run(tb, tick)
		}}},
	}
}

func (s *ticks) Blocked(tb testing.TB, _ string) {
	tb.Helper()
	require.Equal(tb, once.Running, s.run(tb, s.tick).State, "the tick is run beside another transaction that runs it")
}
