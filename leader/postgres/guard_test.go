package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// table makes a table to write to.
func (j judge) table() { j.exec("CREATE TABLE written (what text)") }

func (j judge) written() int { return one[int](j, "SELECT count(*) FROM written") }

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO written VALUES ('x')")
	return err
}

// requireRefused says that a guard refused, and that the transaction is aborted.
func requireRefused(t *testing.T, tx pgx.Tx, err error) *postgres.NotLeaderError {
	t.Helper()
	require.ErrorIs(t, err, leader.ErrNotLeader)
	var refusal *postgres.NotLeaderError
	require.ErrorAs(t, err, &refusal)
	var aborted *pgconn.PgError
	require.ErrorAs(t, write(context.Background(), tx), &aborted)
	require.Equal(t, "25P02", aborted.Code)
	require.ErrorIs(t, tx.Commit(context.Background()), pgx.ErrTxCommitRollback)
	return refusal
}

func TestAGuardRefusesATermThatHasEndedEvenIfTheSameProcessLeads(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	first := lead(t, a, "a")
	require.NoError(t, postgres.InTx(first, judge.pool, write))
	release(t, a, "a")
	lead(t, b, "b")
	release(t, b, "b")
	third := lead(t, a, "a")

	tx := judge.begin()
	refusal := requireRefused(t, tx, postgres.Guard(first, tx))
	assert.Equal(t, leader.Term{Era: 1, N: 1}, refusal.Term)
	assert.Equal(t, "1:100", refusal.Election)
	require.ErrorIs(t, postgres.InTx(first, judge.pool, write), leader.ErrNotLeader)
	assert.Equal(t, 1, judge.written())
	require.NoError(t, postgres.InTx(third, judge.pool, write))
	assert.Equal(t, 2, judge.written())
	assert.Equal(t, 2, judge.locks(), "guards leave nothing")
}

func TestAGuardRefusesAContextThatIsOfNoTermOrHasEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	tx := judge.begin()
	require.ErrorContains(t, requireRefused(t, tx, postgres.Guard(t.Context(), tx)), "the one that the election gives")
	tx = judge.begin()
	requireRefused(t, tx, postgres.Guard(a.Bind(t.Context()), tx)) // it never led

	term := lead(t, a, "a")
	for _, cause := range []error{&leader.LostError{Cause: errors.New("gone")}, leader.ErrReleased} {
		ctx, cancel := context.WithCancelCause(term)
		cancel(cause)
		tx = judge.begin()
		require.ErrorIs(t, requireRefused(t, tx, postgres.Guard(ctx, tx)), cause)
	}

	// A caller that has no time left still leads; its transaction is aborted all the same.
	ctx, cancel := context.WithTimeout(term, 0)
	defer cancel()
	tx = judge.begin()
	err := postgres.Guard(ctx, tx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, leader.ErrNotLeader)
	require.Error(t, write(t.Context(), tx))
	require.NoError(t, postgres.InTx(term, judge.pool, write))
	assert.Equal(t, 1, judge.written())
}

func TestAGuardIsRefusedWhileASuccessorTakesOver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	inFlight := judge.begin()
	require.NoError(t, postgres.Guard(term, inFlight))
	judge.terminate(judge.holder())
	led := make(chan struct{})
	go func() {
		defer close(led)
		lead(t, b, "b")
	}()
	judge.queued()
	tx := judge.begin()
	requireRefused(t, tx, postgres.Guard(term, tx))

	// The one in flight may commit, because nobody leads before it has.
	require.NoError(t, write(t.Context(), inFlight))
	select {
	case <-led:
		require.Fail(t, "somebody leads beside a guarded transaction")
	default:
	}
	require.NoError(t, inFlight.Commit(t.Context()))
	<-led
	assert.Equal(t, 1, judge.written())
}

func TestARollbackToASavepointTakesAGuardBackAndInTxGuardsAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")

	// The control: a bare guard behind a savepoint holds nothing after its rollback.
	tx := judge.begin()
	savepoint, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(term, savepoint))
	require.NoError(t, savepoint.Rollback(t.Context()))
	release(t, a, "a")
	second := lead(t, b, "b")
	require.NoError(t, write(t.Context(), tx))
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, 1, judge.written(), "a stale write")

	// InTx: savepoints of the work do not matter, and not even its worst does.
	require.NoError(t, postgres.InTx(second, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		for range 2 {
			savepoint, err := tx.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, write(ctx, savepoint))
			require.NoError(t, savepoint.Rollback(ctx))
		}
		return write(ctx, tx)
	}))
	assert.Equal(t, 2, judge.written())
	err = postgres.InTx(second, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ROLLBACK; BEGIN")
		require.NoError(t, err)
		release(t, b, "b")
		lead(t, a, "a")
		return write(ctx, tx)
	})
	require.ErrorAs(t, err, new(*postgres.TxEndedError))
	assert.Equal(t, 2, judge.written())
}

func TestInTxRollsBackOnAnErrorAPanicAndACommitThatIsARollback(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	fails := func(ctx context.Context, tx pgx.Tx) error { return errors.Join(write(ctx, tx), assert.AnError) }
	require.ErrorIs(t, postgres.InTx(term, judge.pool, fails), assert.AnError)
	require.PanicsWithValue(t, "boo", func() {
		_ = postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, write(ctx, tx))
			panic("boo")
		})
	})
	require.Error(t, postgres.InTx(term, judge.pool, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, write(ctx, tx))
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}))
	ctx, cancel := context.WithCancelCause(term)
	err := postgres.InTx(ctx, judge.pool, func(_ context.Context, tx pgx.Tx) error {
		cancel(leader.ErrReleased)
		return write(context.WithoutCancel(ctx), tx)
	})
	require.ErrorIs(t, err, leader.ErrReleased)
	require.ErrorIs(t, err, leader.ErrNotLeader)
	assert.Zero(t, judge.written())
	assert.Zero(t, judge.pool.Stat().AcquiredConns())
	require.ErrorIs(t, postgres.InTx(ctx, judge.pool, write), leader.ErrNotLeader) // it cannot even begin
	require.NoError(t, postgres.InTx(term, judge.pool, write))
	assert.Equal(t, 1, judge.written())
}

func TestGuardsWorkWithDatabaseSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	write := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO written VALUES ('x')")
		return err
	}
	term := lead(t, a, "a")
	require.NoError(t, postgres.InSQLTx(term, db, write))
	assert.Equal(t, 1, judge.written())
	require.ErrorIs(t, postgres.InSQLTx(term, db, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(write(ctx, tx), assert.AnError)
	}), assert.AnError)
	release(t, a, "a")
	require.ErrorIs(t, postgres.InSQLTx(term, db, write), leader.ErrNotLeader)

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, postgres.GuardSQL(term, tx), leader.ErrNotLeader)
	require.Error(t, write(t.Context(), tx))
	require.Error(t, tx.Commit())
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, postgres.GuardSQL(t.Context(), tx), leader.ErrNotLeader)
	require.Error(t, write(t.Context(), tx))
	require.Error(t, tx.Commit())
	assert.Equal(t, 1, judge.written())
}

func TestAGuardBoundsTheIdlenessOfItsTransactionAndKeepsAShorterBound(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	term := lead(t, a, "a")
	for before, want := range map[string]string{
		"0": "1min", "10s": "10s", "59999": "59999ms", "1min": "1min", "61s": "1min", "2h": "1min", "1d": "1min",
	} {
		tx := judge.begin()
		_, err := tx.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '"+before+"'")
		require.NoError(t, err)
		var after string
		require.NoError(t, postgres.Guard(term, tx))
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&after))
		assert.Equal(t, want, after, "it was %s", before)
		require.NoError(t, tx.Rollback(t.Context()))
	}

	// A leader that stops inside a guarded transaction does not hold a takeover up for ever.
	release(t, a, "a")
	b := newBackend(t, dsn, nil)
	won, err := b.TryAcquire(t.Context(), "b", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	tx := judge.begin()
	require.NoError(t, postgres.Guard(b.Bind(t.Context()), tx))
	judge.terminate(judge.holder())
	lead(t, a, "a")
	require.Error(t, tx.Commit(t.Context()))
}

func TestAGuardOnAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dsn, elsewhere := pgtest.DSN(t), newJudge(t, pgtest.DSN(t))
	elsewhere.table()
	a := newBackend(t, dsn, nil)
	term := lead(t, a, "a")
	tx := elsewhere.begin()
	requireRefused(t, tx, postgres.Guard(term, tx))
}

func TestAGuardHoldsInAPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := startServer(t, map[string]string{"max_prepared_transactions": "5"})
	dsn := server.DSN("")
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	tx := judge.begin()
	require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
	require.NoError(t, write(t.Context(), tx))
	_, err := tx.Exec(t.Context(), "PREPARE TRANSACTION 'later'")
	require.NoError(t, err)
	judge.terminate(judge.holder())
	pending := awaitPending(t, judge, b, "b")
	assert.True(t, pending.Guarded)
	assert.Zero(t, pending.PID)
	judge.exec("COMMIT PREPARED 'later'")
	lead(t, b, "b")
	assert.Equal(t, 1, judge.written())
}

func TestAGuardIsNotFooledByALenientCast(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	release(t, a, "a")
	judge.exec(`CREATE FUNCTION lenient(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
		CREATE CAST (text AS int) WITH FUNCTION lenient(text)`)
	assert.Equal(t, 1, one[int](judge, "SELECT 'x'::text::int")) // the control
	tx := judge.begin()
	requireRefused(t, tx, postgres.Guard(term, tx))
}

func TestGuardsWorkInEveryModeOfTheDriverAndEveryKindOfTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	ended := lead(t, b, "b")
	release(t, b, "b")
	term := lead(t, a, "a")
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		db := stdlib.OpenDB(*config)
		t.Cleanup(func() { _ = db.Close() })
		for _, options := range []pgx.TxOptions{
			{}, {IsoLevel: pgx.RepeatableRead}, {IsoLevel: pgx.Serializable}, {AccessMode: pgx.ReadOnly},
		} {
			tx, err := conn.BeginTx(t.Context(), options)
			require.NoError(t, err)
			require.NoError(t, postgres.Guard(term, tx), mode)
			require.NoError(t, tx.Commit(t.Context()))
			tx, err = conn.BeginTx(t.Context(), options)
			require.NoError(t, err)
			require.ErrorIs(t, postgres.Guard(ended, tx), leader.ErrNotLeader, mode)
			require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, postgres.GuardSQL(term, tx), mode)
		require.NoError(t, tx.Commit())
	}
	assert.Equal(t, 2, judge.locks())
}

func TestAGuardIsNotFooledByASearchPath(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	judge.table()
	term := lead(t, a, "a")
	release(t, a, "a")
	judge.exec(`CREATE SCHEMA evil;
		CREATE FUNCTION evil.pg_try_advisory_xact_lock_shared(bigint) RETURNS bool LANGUAGE sql AS 'SELECT false';
		CREATE FUNCTION evil.always(interval, interval) RETURNS bool LANGUAGE sql AS 'SELECT true';
		CREATE OPERATOR evil.> (LEFTARG = interval, RIGHTARG = interval, FUNCTION = evil.always)`)
	tx := judge.begin()
	_, err := tx.Exec(t.Context(), "SET search_path = evil, pg_catalog, public")
	require.NoError(t, err)
	requireRefused(t, tx, postgres.Guard(term, tx))
}
