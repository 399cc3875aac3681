package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/postgres"
)

// briefly is a GuardTimeout that ends in a test.
const briefly = 200 * time.Millisecond

func hurried(c *postgres.Config)   { c.GuardTimeout = briefly }
func unhurried(c *postgres.Config) { c.GuardTimeout = -1 }

// stuck leaves a guarded transaction inside a statement that waits for a row, and ends
// its leader's session. It returns what the statement will say.
func stuck(t *testing.T, judge judge, a *postgres.Backend) (pid uint32, statement <-chan error) {
	t.Helper()
	judge.Exec("CREATE TABLE row (i int); INSERT INTO row VALUES (1)")
	_, err := judge.Begin().Exec(t.Context(), "SELECT FROM row FOR UPDATE")
	require.NoError(t, err)
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
	pid = pidOf(t, tx)
	said := make(chan error, 1)
	go func() {
		_, err := tx.Exec(context.Background(), "UPDATE row SET i = i + 1")
		said <- err
	}()
	judge.Until(func() bool {
		return dbtest.Ask[int](judge, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", pid) == 1
	})
	judge.Terminate(judge.holder())
	return pid, said
}

func TestATakeoverEndsAGuardedTransactionThatOutlivesTheGuardTimeout(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var log bytes.Buffer
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	b := newBackend(t, dsn, func(c *postgres.Config) {
		hurried(c)
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	})
	bystander := judge.Begin()
	_, err := bystander.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
	require.NoError(t, err)
	_, statement := stuck(t, judge, a)
	lead(t, b, "b")
	require.Equal(t, "57P01", sqlstate.Of(<-statement), "terminated by an administrator")
	assert.Contains(t, log.String(), "guarded transaction of an earlier term is ended")
	require.NoError(t, bystander.Commit(t.Context()))
	assert.Equal(t, 1, dbtest.Ask[int](judge, "SELECT i FROM row"))
}

// The control of the test above.
func TestWithoutAGuardTimeoutATakeoverWaitsForAsLongAsAGuardedTransactionLasts(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, unhurried), newJudge(t, dsn)
	pid, statement := stuck(t, judge, a)
	for range 5 {
		pending := awaitPending(t, judge, b, "b")
		assert.Equal(t, pid, pending.PID)
		assert.Empty(t, pending.Needs)
	}
	assert.Empty(t, statement, "it goes on")
	judge.Terminate(pid)
	require.Error(t, <-statement)
	lead(t, b, "b")
}

func TestATakeoverThatMayNotEndAGuardedTransactionSaysWhoseItIsAndWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	admin := newJudge(t, server.DSN(""))
	admin.Exec("CREATE ROLE writer LOGIN; CREATE ROLE candidate LOGIN; CREATE ROLE signals LOGIN IN ROLE pg_signal_backend")
	admin.Exec(postgres.Schema("") + "; GRANT ALL ON pglatch_election TO PUBLIC")
	as := func(role string) string { return pgtest.As(t, server.DSN(""), role) }
	guarded := func(role string) pgx.Tx {
		judge := newJudge(t, as(role))
		a := newBackend(t, as(role), nil)
		tx := judge.Begin()
		require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
		admin.Terminate(admin.holder())
		return tx
	}
	needs := func(dsn string, tx pgx.Tx, role, need string) {
		t.Helper()
		var log bytes.Buffer
		b := newBackend(t, dsn, func(c *postgres.Config) {
			hurried(c)
			c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		})
		var pending *postgres.PendingError
		for range 3 {
			pending = awaitPending(t, admin, b, "b")
		}
		assert.Equal(t, pidOf(t, tx), pending.PID)
		assert.Equal(t, role, pending.Role)
		require.ErrorContains(t, pending, need)
		require.ErrorContains(t, pending, "of role "+role)
		assert.Contains(t, log.String(), need)
		assert.NotContains(t, log.String(), "is ended")
		require.NoError(t, tx.Commit(t.Context()), "it was ended all the same")
		lead(t, b, "b")
		release(t, b, "b")
		require.NoError(t, b.Close())
	}
	needs(as("candidate"), guarded("writer"), "writer", "pg_signal_backend")
	needs(as("signals"), guarded("postgres"), "postgres", "SUPERUSER")

	// The controls: roles that have the right.
	for candidate, writer := range map[string]string{"writer": "writer", "signals": "writer", "postgres": "candidate"} {
		tx := guarded(writer)
		b := newBackend(t, as(candidate), hurried)
		lead(t, b, "b")
		require.Error(t, tx.Commit(t.Context()), "%s may end what %s does", candidate, writer)
		release(t, b, "b")
		require.NoError(t, b.Close())
	}
}

func TestAPreparedTransactionIsNamedByItsGID(t *testing.T) {
	t.Parallel()
	server := startServer(t, map[string]string{"max_prepared_transactions": "5"})
	dsn := server.DSN("")
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	var log bytes.Buffer
	b := newBackend(t, dsn, func(c *postgres.Config) {
		hurried(c)
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	})
	judge.table()
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
	require.NoError(t, write(t.Context(), tx))
	_, err := tx.Exec(t.Context(), "PREPARE TRANSACTION 'order 4711'")
	require.NoError(t, err)
	judge.Terminate(judge.holder())
	said := func() {
		t.Helper()
		pending := awaitPending(t, judge, b, "b")
		assert.Equal(t, "order 4711", pending.Prepared)
		assert.Equal(t, "postgres", pending.Role)
		assert.False(t, pending.Since.IsZero())
		require.ErrorContains(t, pending, `prepared as "order 4711", COMMIT PREPARED or ROLLBACK PREPARED ends it`)
		assert.NotContains(t, pending.Error(), "backend 0")
	}
	for end := time.Now().Add(patience); !strings.Contains(log.String(), "order 4711"); { // as soon as an attempt lasts
		require.True(t, time.Now().Before(end), "it is not logged")
		said()
	}
	said()
	require.NoError(t, server.Restart(t.Context(), pgserver.Fast)) // which keeps its locks
	judge.Pool.Reset()
	said()
	judge.Exec("COMMIT PREPARED 'order 4711'")
	lead(t, b, "b")
	assert.Equal(t, 1, judge.written())
}

// While a takeover waits, somebody else's transactions come and go on the connection
// that a guarded one was on.
func TestATakeoverEndsNoTransactionButThoseThatItFoundInItsWay(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	const timeout = 4 * time.Second // in which the transaction has to commit
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	b := newBackend(t, dsn, func(c *postgres.Config) { c.GuardTimeout = timeout })
	judge.table()
	conn, err := judge.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	term := lead(t, a, "a")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(term, tx))
	judge.Terminate(judge.holder())
	var wg sync.WaitGroup
	wg.Go(func() { lead(t, b, "b") })
	judge.queued()
	require.NoError(t, write(t.Context(), tx))
	require.NoError(t, tx.Commit(t.Context()))
	wg.Wait()

	// The same session, under the new term, for longer than the timeout.
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(b.Bind(t.Context()), tx))
	_, err = tx.Exec(t.Context(), "SELECT pg_sleep(1.25 * $1::float8)", timeout.Seconds())
	require.NoError(t, err)
	require.NoError(t, write(t.Context(), tx))
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, 2, judge.written())
}
