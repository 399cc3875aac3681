package turns_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/turns"
)

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
