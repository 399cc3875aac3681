package turns_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/turns"
)

// A commit that finds no further message must not forget the entity while a sender has not committed its own.
func TestACommitBesideAnOpenSenderLosesNoMessage(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"with the sender's lock": false, "control: without it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{"IF pg_try_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity)) THEN": "IF true THEN"})
			}
			entered, leave := make(chan string, 2), make(chan struct{})
			b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
				entered <- texts(turn.Messages())
				<-leave
				return turn.Commit(ctx, nil)
			})
			b.send(t, "a", "1")
			await.Receive(t, await.Soon, entered)
			tx := b.begin(t)
			_, err := b.put(t, tx, "a", "2")
			require.NoError(t, err)
			close(leave)
			await.Until(t, await.Soon, func() bool { return b.bodies(t) == "" }, "the turn was committed")
			require.NoError(t, tx.Commit(t.Context()))
			if control {
				assert.Equal(t, "2", b.bodies(t))
				assert.Zero(t, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.entities"), "nobody will look for it")
				return
			}
			assert.Equal(t, "2", await.Receive(t, await.Soon, entered))
		})
	}
}

func TestASendNotifiesOnlyIfNoServerLooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := pgtest.Connect(t, b.dsn)
	_, err := conn.Exec(t.Context(), `LISTEN "pglatch_turns/chat"`)
	require.NoError(t, err)
	next := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), await.Soon)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		require.NoError(t, err)
		return n.Payload
	}
	b.send(t, "a", "1")
	assert.Empty(t, next(), "nobody has looked")
	exec(t, b.pool, "UPDATE pglatch_turns.mailboxes SET awake_until = now() + interval '1 hour'")
	b.send(t, "a", "2")
	exec(t, b.pool, `NOTIFY "pglatch_turns/chat", 'sentinel'`)
	assert.Equal(t, "sentinel", next(), "somebody looks")
}

// A counter notes the statements of a pool.
type counter struct{ statements chan string }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	select {
	case c.statements <- data.SQL:
	default:
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		c.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: q.SQL})
	}
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// counted opens a pool whose statements a counter notes.
func counted(t *testing.T, dsn string) (*counter, *pgxpool.Pool) {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	c := &counter{make(chan string, 1000)}
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return c, pool
}

func TestAnIdleServerSendsOneStatementForEachLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, pool := counted(t, b.dsn)
	changed := b.config
	changed.Pool = pool
	box, err := turns.Open(t.Context(), changed)
	require.NoError(t, err)
	handled := make(chan struct{})
	serve(t, box, func(context.Context, *turns.Turn) error { close(handled); return nil })
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, handled)
	var claims int
	for looks := 0; looks < 3; { // three in a row
		if sql := await.Receive(t, await.Soon, c.statements); strings.Contains(sql, "pglatch_turns.look(") {
			looks++
		} else {
			looks, claims = 0, claims+strings.Count(sql, "pglatch_turns.claim(")
		}
	}
	assert.Positive(t, claims, "the control: a server that has found something claims")
}

func TestALostLockEndsTheTurnAndTheNodeGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.logged(t)
	entered, causes := make(chan struct{}, 2), make(chan error, 1)
	var first atomic.Bool
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		if first.CompareAndSwap(false, true) {
			entered <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		return turn.Commit(ctx, write(ctx, turn))
	})
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, entered)
	exec(t, b.pool, `SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`)
	require.ErrorIs(t, await.Receive(t, await.Soon, causes), advisory.ErrLost)
	await.Until(t, await.Patience, func() bool { return b.count(t) == 1 && b.empty(t) }, "the node goes on under another name")
}

// Two texts of one entity have one key: they exclude each other, and are not mixed.
func TestTwoTextsWithOneKeySerialise(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Batch = 10 })
	const id = "6f1c9b0e-0000-4000-8000-00000000000a"
	var busy, overlaps atomic.Int32
	handled, leave := make(chan string, 10), make(chan struct{})
	for _, text := range []string{id, strings.ToUpper(id)} {
		for _, body := range []string{text[:2] + "1", text[:2] + "2"} {
			exec(t, b.pool, "SELECT pglatch_turns.pglatch_send('chat', $1, convert_to($2, 'UTF8'))", text, body)
		}
	}
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		overlaps.Add(busy.Add(1) - 1)
		defer busy.Add(-1)
		handled <- texts(turn.Messages())
		<-leave
		return nil
	})
	got := []string{await.Receive(t, await.Soon, handled)}
	b.send(t, "another", "x")
	assert.Equal(t, "x", await.Receive(t, await.Soon, handled), "the control: another entity has its turn meanwhile")
	close(leave)
	got = append(got, await.Receive(t, await.Soon, handled))
	assert.ElementsMatch(t, []string{"6f1 6f2", "6F1 6F2"}, got)
	assert.EqualValues(t, 1, overlaps.Load(), "that of the control")
}
