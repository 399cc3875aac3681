package turns_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/turns"
)

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
