package turns_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func (b *bench) begin(tb testing.TB, level ...pgx.TxIsoLevel) pgx.Tx {
	tb.Helper()
	options := pgx.TxOptions{}
	if len(level) > 0 {
		options.IsoLevel = level[0]
	}
	tx, err := b.pool.BeginTx(tb.Context(), options)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(tb.Context())) })
	return tx
}

func (b *bench) put(tb testing.TB, tx pgx.Tx, entity, text string) (turns.Ticket, error) {
	tb.Helper()
	return b.Send(tb.Context(), tx, key(tb, entity), turns.Message{Body: []byte(text)})
}

// bodies are the waiting messages, in the order of their numbers.
func (b *bench) bodies(tb testing.TB) string {
	tb.Helper()
	return one[string](tb, b.pool, "SELECT coalesce(string_agg(convert_from(body, 'UTF8'), ' ' ORDER BY number), '') FROM pglatch_turns.messages")
}

// blocked reports whether a session waits for an advisory lock.
func (b *bench) blocked(tb testing.TB, sessions int) bool {
	tb.Helper()
	return one[int](tb, b.pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == sessions
}

// The schedule: the first transaction sends and stays open, the second one sends and commits, then the first commits.
func TestNumbersFollowTheCommits(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"with the lock": false, "control: with the sequence alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{"ELSIF NOT (pg_try_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity)) OR pglatch_turns.lock_sends(p_mailbox, p_entity, p_wait_ms)) THEN": "ELSIF false THEN"})
			}
			b.send(t, "a", "first") // so that the entity is there
			slow := b.begin(t)
			_, err := b.put(t, slow, "a", "slow")
			require.NoError(t, err)
			done := make(chan error, 1)
			fast := b.begin(t)
			go func() {
				_, err := b.put(t, fast, "a", "fast")
				if err == nil {
					err = fast.Commit(t.Context())
				}
				done <- err
			}()
			if control {
				require.NoError(t, await.Receive(t, await.Soon, done))
				require.NoError(t, slow.Commit(t.Context()))
				assert.Equal(t, "first slow fast", b.bodies(t), "fast was committed first, and has the later number: a reader that took it has passed slow")
				return
			}
			await.Until(t, await.Soon, func() bool { return b.blocked(t, 1) }, "the second sender waits")
			require.NoError(t, slow.Commit(t.Context()))
			require.NoError(t, await.Receive(t, await.Soon, done))
			assert.Equal(t, "first slow fast", b.bodies(t), "slow was committed first")
		})
	}
}

func TestAResendDoesNothingAndReturnsTheFirstTicket(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			resend := func(entity, id string) (turns.Ticket, error) {
				tx := b.begin(t, level)
				ticket, err := b.Send(t.Context(), tx, key(t, entity), turns.Message{ID: id, Body: []byte("x")})
				if err == nil {
					err = tx.Commit(t.Context())
				}
				return ticket, err
			}
			first, err := resend("a", "m1")
			require.NoError(t, err)
			again, err := resend("a", "m1")
			require.NoError(t, err)
			assert.Equal(t, turns.Ticket{Entity: "a", ID: "m1", Number: first.Number, Again: true}, again)
			_, err = resend("b", "m1")
			require.NoError(t, err, "of another entity")
			assert.Equal(t, "x x", b.bodies(t))

			// The control: without an ID each Send is a message.
			_, err = resend("a", "")
			require.NoError(t, err)
			assert.Equal(t, "x x x", b.bodies(t))

			stop := b.serve(t, func(context.Context, *turns.Turn) error { return nil })
			await.Until(t, await.Soon, func() bool { return b.empty(t) })
			stop()
			again, err = resend("a", "m1")
			require.NoError(t, err)
			assert.Equal(t, first.Number, again.Number, "after its commit too")
			exec(t, b.pool, "UPDATE pglatch_turns.sent SET sent_at = sent_at - interval '25 hours'")
			exec(t, b.pool, "SELECT pglatch_turns.sweep('chat', interval '1 hour')")
			again, err = resend("a", "m1")
			require.NoError(t, err)
			assert.Greater(t, again.Number, first.Number, "its ID is forgotten")
		})
	}
}

func TestASnapshotThatIsTooOldIsAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := b.begin(t, pgx.RepeatableRead)
	_, err := tx.Exec(t.Context(), "SELECT count(*) FROM pglatch_turns.mailboxes") // takes the snapshot
	require.NoError(t, err)
	b.send(t, "a", "1", "m1")
	_, err = b.Send(t.Context(), tx, key(t, "a"), turns.Message{ID: "m1"})
	require.ErrorIs(t, err, turns.ErrConflict)
}

// An old snapshot shows the row of an entity that was deleted since.
func TestASendFromAnOldSnapshotWakesItsEntity(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"inserts the entity": false, "control: trusts its snapshot": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{"IF fresh THEN": "IF true THEN"})
			}
			b.send(t, "a", "1")
			tx := b.begin(t, pgx.RepeatableRead)
			_, err := tx.Exec(t.Context(), "SELECT count(*) FROM pglatch_turns.mailboxes")
			require.NoError(t, err)
			stop := b.serve(t, func(context.Context, *turns.Turn) error { return nil })
			await.Until(t, await.Soon, func() bool { return b.empty(t) })
			stop()
			_, err = b.put(t, tx, "a", "2")
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			assert.Equal(t, !control, one[bool](t, b.pool, "SELECT EXISTS (SELECT FROM pglatch_turns.entities)"))
		})
	}
}

func TestLimitsAreTypedAndLeaveTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.MaxBytes = 10; c.MaxDepth = 2; c.SendWait = 50 * time.Millisecond })
	other := b.begin(t)
	_, err := b.put(t, other, "held", "1")
	require.NoError(t, err)
	tx := b.begin(t)
	_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1h'")
	require.NoError(t, err)
	var limit *turns.LimitError
	_, err = b.put(t, tx, "a", strings.Repeat("x", 11))
	require.ErrorAs(t, err, &limit)
	assert.Equal(t, "bytes", limit.What)
	for range 2 {
		_, err = b.put(t, tx, "a", "x")
		require.NoError(t, err)
	}
	_, err = b.put(t, tx, "a", "x")
	require.ErrorAs(t, err, &limit)
	assert.Equal(t, "depth", limit.What)
	_, err = b.put(t, tx, "held", "2")
	require.ErrorIs(t, err, turns.ErrTimeout)
	_, err = b.Send(t.Context(), tx, key(t, "a"), turns.Message{ID: "\x00"})
	require.ErrorIs(t, err, turns.ErrInvalid)
	_, err = b.Send(t.Context(), b.pool, key(t, "a"), turns.Message{})
	require.ErrorIs(t, err, turns.ErrNoTransaction)
	var lockTimeout string
	require.NoError(t, tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&lockTimeout))
	assert.Equal(t, "1h", lockTimeout)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, other.Rollback(t.Context()))
	assert.Equal(t, "x x", b.bodies(t))
}

// Positions rise for as long as something waits. The depth is the difference.
func TestTheDepthIsThatOfTheMessagesThatWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.MaxDepth = 2 })
	for n := range 5 {
		exec(t, b.pool, "DELETE FROM pglatch_turns.messages WHERE number < (SELECT max(number) FROM pglatch_turns.messages)") // one waits
		b.send(t, "a", fmt.Sprint(n))
	}
	assert.Equal(t, "3 4", b.bodies(t))
	_, err := b.put(t, b.begin(t), "a", "5")
	require.ErrorIs(t, err, turns.ErrLimit, "the control: two wait")
}

// Its connection is not known.
type bareTx struct{ turns.PgxTx }

// A connection that says that it is in a transaction block needs no second statement to prove it.
func TestASendOfPgxIsOneStatement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, pool := counted(t, b.dsn)
	sends := func(tx turns.PgxTx) (n int) {
		_, err := b.Send(t.Context(), tx, key(t, "a"), turns.Message{Body: []byte("x")})
		require.NoError(t, err)
		for {
			select {
			case <-c.statements:
				n++
			default:
				return n
			}
		}
	}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, "begin", <-c.statements)
	savepoint, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.Contains(t, <-c.statements, "savepoint")
	assert.Equal(t, 1, sends(savepoint))
	require.NoError(t, savepoint.Commit(t.Context()))
	<-c.statements
	assert.Equal(t, 1, sends(tx))
	assert.Equal(t, 2, sends(bareTx{tx}), "the control")
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, "x x x", b.bodies(t))
	_, err = b.Send(t.Context(), tx, key(t, "a"), turns.Message{})
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = b.Send(t.Context(), bareTx{pool}, key(t, "a"), turns.Message{})
	require.ErrorIs(t, err, turns.ErrNoTransaction)
}

func TestSQLSendsToo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	role := "pglatch_test_" + strings.ToLower(rand.Text())
	exec(t, b.pool, `CREATE ROLE `+role)
	t.Cleanup(func() { exec(t, b.pool, `DROP OWNED BY `+role+`; DROP ROLE `+role, pgx.QueryExecModeSimpleProtocol) })
	tx := b.begin(t)
	as := func(sql string) error {
		_, err := tx.Exec(t.Context(), "SAVEPOINT s")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			_, undone := tx.Exec(t.Context(), "ROLLBACK TO s")
			require.NoError(t, undone)
		}
		return err
	}
	require.NoError(t, as("SET LOCAL ROLE "+role))
	require.Error(t, as("SELECT pglatch_turns.pglatch_send('chat', 'a', 'x')"), "without the grant")
	require.NoError(t, as("RESET ROLE; "+turns.Grants(role, "")+"SET LOCAL ROLE "+role))
	require.NoError(t, as("SET LOCAL search_path = ''; SELECT pglatch_turns.pglatch_send('chat', 'a', 'x', 'm1')"))
	require.NoError(t, as("SELECT state FROM pglatch_turns.outcome('chat', 'a', 1, 'm1')"))
	for _, refused := range []string{
		"SELECT count(*) FROM pglatch_turns.messages",
		"SELECT * FROM pglatch_turns.claim('chat', 'me', 1, '0')",
		"SELECT pglatch_turns.pglatch_send('elsewhere', 'a', 'x')",
		"SELECT pglatch_turns.pglatch_send('chat', '', 'x')",
	} {
		require.Error(t, as(refused), refused)
	}
	require.NoError(t, as("RESET ROLE"))
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, "x", b.bodies(t))

	db, err := sql.Open("pgx", b.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	std, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ticket, err := b.SendSQL(t.Context(), std, key(t, "a"), turns.Message{ID: "it's", Body: []byte("$1 'y'")})
	require.NoError(t, err)
	require.NoError(t, std.Commit())
	assert.Equal(t, "x $1 'y'", b.bodies(t))
	handled := make(chan string, 2)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		turn.SetValue([]byte{})
		handled <- texts(turn.Messages())
		return turn.CommitSQL(ctx, db, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT 1")
			return err
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), await.Soon)
	defer cancel()
	outcome, err := b.Wait(ctx, ticket)
	require.NoError(t, err)
	assert.Equal(t, turns.Outcome{State: turns.Done, Value: []byte{}}, outcome)
}

// The next entity and the first message of one are found by an index, whatever the depth.
func TestTheCostDoesNotGrowWithTheDepth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.send(t, fmt.Sprint("c", i), "1")
	}
	exec(t, b.pool, `INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
		SELECT 'chat', 'c1', 1000 + n, 1 + n, '', '', now(), '' FROM generate_series(1, 20000) AS n`)
	exec(t, b.pool, `INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after) SELECT 'chat', 'w' || n, 'ready', now(), 0 FROM generate_series(1, 5000) AS n`)
	exec(t, b.pool, `ANALYZE pglatch_turns.messages, pglatch_turns.entities`)
	plan := func(sql string) string {
		rows, err := b.pool.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF, COSTS OFF) "+sql)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(lines, "\n")
	}
	next := plan(`SELECT r.ctid FROM pglatch_turns.entities AS r WHERE r.mailbox = 'chat' AND r.state = 'ready' AND r.ready_at <= statement_timestamp() ORDER BY r.ready_at LIMIT 10 FOR UPDATE SKIP LOCKED`)
	assert.Contains(t, next, "entities_ready")
	assert.NotContains(t, next, "Sort")
	first := plan(`SELECT * FROM pglatch_turns.messages AS x WHERE x.mailbox = 'chat' AND x.entity = 'c1' AND x.number > 0 ORDER BY x.number LIMIT 1`)
	assert.Contains(t, first, "messages_pkey")
	assert.NotContains(t, first, "Sort")
	// The control: without the index the plan has to sort.
	tx := b.begin(t)
	_, err := tx.Exec(t.Context(), "DROP INDEX pglatch_turns.entities_ready")
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), `EXPLAIN SELECT r.ctid FROM pglatch_turns.entities AS r WHERE r.mailbox = 'chat' AND r.state = 'ready' ORDER BY r.ready_at LIMIT 10`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Contains(t, strings.Join(lines, "\n"), "Sort")
}

func TestADeadLetterThatIsRetriedDuringALaterTurnHasItsTurn(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"taken": false, "control: the commit passes over it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *turns.Config) { c.MaxAttempts = 1 })
			if control {
				without(t, b.pool, map[string]string{"m.number < last ORDER BY": "false ORDER BY"})
			}
			var retried atomic.Bool
			handled := make(chan string, 10)
			first := b.send(t, "a", "1")
			b.send(t, "a", "2") // waits while 1 dies, so that the row of the entity stays
			b.serve(t, func(_ context.Context, turn *turns.Turn) error {
				text := texts(turn.Messages())
				if text == "1" && !retried.Load() {
					return errors.New("no model")
				}
				if text == "2" {
					retried.Store(true)
					require.NoError(t, b.Retry(t.Context(), first.Number))
				}
				handled <- text
				return nil
			})
			assert.Equal(t, "2", await.Receive(t, await.Soon, handled))
			if !control {
				assert.Equal(t, "1", await.Receive(t, await.Soon, handled))
				return
			}
			// No row says that the entity has a message: no turn takes it.
			await.Until(t, await.Soon, func() bool { return one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.entities") == 0 })
			assert.Equal(t, 1, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.messages"))
		})
	}
}

func TestDeadLettersAreKeptForATime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exec(t, b.pool, `INSERT INTO pglatch_turns.dead (mailbox, number, entity, position, id, trace, sent_at, body, attempts, error, died_at)
		SELECT 'chat', n, 'a', n, '', '', now(), '', 1, '', now() - n * interval '1 hour' FROM generate_series(1, 3) AS n`)
	exec(t, b.pool, "SELECT pglatch_turns.sweep('chat', interval '90 minutes')")
	letters, err := b.DeadLetters(t.Context(), key(t, "a"), 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.EqualValues(t, 1, letters[0].Message.Number, "the control: it is not old enough")
}

func TestWhatATurnTookLaterDoesNotDieWithIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.MaxAttempts = 1; c.Batch = 10 })
	handled := make(chan string, 1)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		if texts(turn.Messages()) != "bad" {
			handled <- texts(turn.Messages())
			return nil
		}
		b.send(t, "a", "later")
		more, err := turn.More(ctx)
		assert.NoError(t, err)
		assert.Equal(t, "later", texts(more))
		return errors.New("no model")
	})
	b.send(t, "a", "bad")
	assert.Equal(t, "later", await.Receive(t, await.Soon, handled))
	letters, err := b.DeadLetters(t.Context(), namespace.Key{}, 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Equal(t, "bad", string(letters[0].Message.Body))
}
