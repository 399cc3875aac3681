package turns_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/turns"
)

// claims claims the entities that have been ready since a moment, in a transaction that it rolls back. pages is how many
// pages PostgreSQL read for that.
func (b *bench) claims(t *testing.T, since time.Time) (entities []string, pages int) {
	t.Helper()
	const call = "SELECT entity FROM pglatch_turns.claim('chat', 'node', 50, '0', $1)"
	tx := b.begin(t)
	entities = list(t, tx, call, since.UnixMicro())
	require.NoError(t, tx.Rollback(t.Context()))
	tx = b.begin(t)
	pages = pagesOf(t, tx, call, since.UnixMicro())
	require.NoError(t, tx.Rollback(t.Context()))
	return entities, pages
}

// A querier is a transaction or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// list returns the first column of a query.
func list(t *testing.T, db querier, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}

// pagesOf returns how many pages PostgreSQL reads for a query.
func pagesOf(t *testing.T, db querier, sql string, args ...any) int {
	t.Helper()
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	plan := list(t, db, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+sql, args...)
	require.NoError(t, json.Unmarshal([]byte(plan[0]), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// A snapshot that is held keeps the index entries of all turns that ended since.
func TestAClaimDoesNotReadWhatTurnsLeftUnderASnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.begin(t, pgx.RepeatableRead)
	_, err := held.Exec(t.Context(), "SELECT FROM pglatch_turns.entities")
	require.NoError(t, err)
	exec(t, b.pool, `INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after)
		SELECT 'chat', 'e' || n, 'ready', now() - interval '1 hour' + n * interval '1 millisecond', 0 FROM generate_series(1, 5000) AS n`)
	exec(t, b.pool, "DELETE FROM pglatch_turns.entities")
	b.send(t, "a", "1")
	entities, few := b.claims(t, time.Now().Add(-10*time.Minute))
	assert.Equal(t, []string{"a"}, entities)
	entities, many := b.claims(t, time.Unix(0, 0)) // the control
	assert.Equal(t, []string{"a"}, entities)
	assert.Less(t, 5*few, many, "pages")
}

// The indexes keep entries of each turn that ended since, and of each time at which an entity was ready.
func TestLooksAndCommitsDoNotReadWhatTurnsLeftUnderASnapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exec(t, b.pool, `INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after)
		SELECT 'chat', 'e' || n, 'ready', now() - interval '1 hour', 0 FROM generate_series(1, 300) AS n`)
	held := b.begin(t, pgx.RepeatableRead)
	_, err := held.Exec(t.Context(), "SELECT FROM pglatch_turns.entities")
	require.NoError(t, err)
	for round := range 40 {
		exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'running', node = 'n', token = $1 * 1000 + substr(entity, 2)::int", round)
		exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'ready', node = '', ready_at = clock_timestamp() - interval '1 hour' WHERE entity <> 'e300' OR $1 < 39", round)
	}
	exec(t, b.pool, "UPDATE pglatch_turns.entities SET ready_at = now() + interval '1 hour' WHERE state = 'ready'")
	conn, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	since := time.Now().UnixMicro()
	pages := func(sql string, args ...any) int {
		list(t, conn, sql, args...)
		return pagesOf(t, conn, sql, args...)
	}
	const look = "SELECT pglatch_turns.look('chat', 'n', $1, '{39300}', $2)::text"
	few := pages(look, since, false)
	assert.Less(t, 3*few, pages(look, 0, false), "a look, and the control: from the first entry on")
	assert.Less(t, 3*few, pages(look, since, true), "a look, and the control: that counts all turns")
	few = pages("SELECT pglatch_turns.is_current('chat', 'n', 'e300', 39300)::text")
	assert.Less(t, 2*few, pages("SELECT entity FROM pglatch_turns.entities WHERE mailbox = 'chat' AND entity = 'e300'"), "the check of a commit, and the control: by the entity")
}

// late writes what a sender leaves whose transaction was open for an hour.
func (b *bench) late(t *testing.T) {
	t.Helper()
	exec(t, b.pool, `WITH m AS (INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
			VALUES ('chat', 'late', nextval('pglatch_turns.number'), 1, '', '', now() - interval '1 hour', 'late'))
		INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after) VALUES ('chat', 'late', 'ready', now() - interval '1 hour', 0)`)
}

func TestALookFindsTheMessageOfALongTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handled := make(chan string, 10)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		handled <- texts(turn.Messages())
		return nil
	})
	b.send(t, "a", "1")
	require.Equal(t, "1", await.Receive(t, await.Soon, handled))
	b.late(t)
	require.Equal(t, "late", await.Receive(t, await.Soon, handled))
}

// The control of the test before: a claim alone does not find it.
func TestAClaimDoesNotFindTheMessageOfALongTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.late(t)
	entities, _ := b.claims(t, time.Now().Add(-10*time.Minute))
	assert.Empty(t, entities)
	entities, _ = b.claims(t, time.Unix(0, 0))
	assert.Equal(t, []string{"late"}, entities)
}

// A standby that lacks the last claims of the old primary, and the last numbers of its sequence, makes these claims again.
func TestAClaimAfterAPromotionHasAnotherTokenThanTheOneThatWasLost(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"another token": false, "control: without the random part": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{" * 1048576 + floor(random() * 1048576)::bigint": ""})
			}
			b.send(t, "a", "1")
			claim := func(node string) int64 {
				exec(t, b.pool, "SELECT setval('pglatch_turns.token', 41)")
				exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'ready'")
				return one[int64](t, b.pool, "SELECT token FROM pglatch_turns.claim('chat', $1, 1, '0')", node)
			}
			assert.Equal(t, control, claim("old") == claim("new"))
		})
	}
}

func TestTokensRise(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, "a", "1")
	last := int64(0)
	for range 20 {
		token := one[int64](t, b.pool, "SELECT token FROM pglatch_turns.claim('chat', 'node', 1, '0')")
		assert.Greater(t, token, last)
		last = token
		exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'ready'")
	}
}

// A process can be stopped between the statements of its claim. Its transaction has the row of the entity.
func TestAClaimThatIsStoppedInTheMiddleDoesNotKeepItsEntity(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"the server ends the transaction": "'300ms'", "control: without a limit": "'0'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			without(t, b.pool, map[string]string{"'15s'": limit})
			b.send(t, "a", "1")
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			rows, err := tx.Query(t.Context(), "SELECT entity FROM pglatch_turns.claim('chat', 'stopped', 1, '0')")
			require.NoError(t, err)
			claimed, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, "a", claimed)
			if limit == "'0'" {
				_, err := b.pool.Exec(t.Context(), "SELECT FROM pglatch_turns.entities FOR UPDATE NOWAIT")
				assert.Equal(t, sqlstate.LockNotAvailable, sqlstate.Of(err), "the row stays locked")
				return
			}
			handled := make(chan string, 1)
			b.serve(t, func(_ context.Context, turn *turns.Turn) error {
				handled <- texts(turn.Messages())
				return nil
			})
			assert.Equal(t, "1", await.Receive(t, await.Soon, handled), "another node has the turn")
		})
	}
}

// A process can be stopped between its Send and its commit. Its transaction has the lock of the entity's senders.
func TestASenderThatIsStoppedDoesNotKeepOthersOut(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"the server ends the transaction": "'300ms'", "control: without a limit": "'0'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *turns.Config) { c.SendWait = 500 * time.Millisecond })
			without(t, b.pool, map[string]string{"'15s'": limit})
			stopped := b.begin(t)
			_, err := b.put(t, stopped, "a", "1")
			require.NoError(t, err)
			send := func() error {
				return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
					_, err := b.put(t, tx, "a", "2")
					return err
				})
			}
			if limit == "'0'" {
				assert.ErrorIs(t, send(), turns.ErrTimeout)
				return
			}
			await.Until(t, await.Soon, func() bool { return send() == nil })
			assert.Equal(t, "2", b.bodies(t))
		})
	}
}
