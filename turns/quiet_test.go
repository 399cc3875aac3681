package turns_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/turns"
)

// aged makes the messages of an entity older, and the entity ready now.
func (b *bench) aged(tb testing.TB, by string) {
	tb.Helper()
	exec(tb, b.pool, "UPDATE pglatch_turns.messages SET sent_at = sent_at - $1::text::interval", by)
	exec(tb, b.pool, `WITH woken AS (UPDATE pglatch_turns.entities SET ready_at = now()) SELECT pg_notify('pglatch_turns/chat', '')`)
}

func TestATurnWaitsForQuietAndNotForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Batch = 100; c.Quiet = time.Hour })
	handled := make(chan string, 10)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		handled <- texts(turn.Messages())
		return nil
	})
	later := func() bool {
		return one[bool](t, b.pool, "SELECT coalesce(bool_and(ready_at > now() + interval '30 minutes' AND state = 'ready' AND attempts = 0), false) FROM pglatch_turns.entities")
	}
	b.send(t, "a", "1")
	assert.True(t, later())
	b.aged(t, "1 second")
	await.Until(t, await.Soon, later, "it is not quiet yet: the claim is given back")
	b.send(t, "a", "2")
	b.aged(t, "2 hours")
	assert.Equal(t, "1 2", await.Receive(t, await.Soon, handled), "nothing came for an hour")
	await.Until(t, await.Soon, func() bool { return b.empty(t) })

	b.send(t, "a", "3")
	exec(t, b.pool, "UPDATE pglatch_turns.messages SET sent_at = sent_at - interval '6 hours'")
	b.send(t, "a", "4")
	b.aged(t, "1 second")
	assert.Equal(t, "3 4", await.Receive(t, await.Soon, handled), "the first one has waited for long enough")
}

func TestTheEntityThatHasBeenReadyForLongestIsTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Concurrency = 1 })
	for _, m := range [][2]string{{"a", "a1"}, {"a", "a2"}, {"b", "b1"}, {"c", "c1"}} {
		b.send(t, m[0], m[1])
	}
	handled := make(chan string, 10)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		handled <- texts(turn.Messages())
		return nil
	})
	for _, want := range []string{"a1", "b1", "c1", "a2"} {
		assert.Equal(t, want, await.Receive(t, await.Soon, handled), "after its turn an entity goes to the end")
	}
}

func TestAPurgeMakesTheTurnStale(t *testing.T) {
	t.Parallel()
	ended := make(chan turns.TurnData, 2)
	b := newBench(t, func(c *turns.Config) {
		c.Observer.Ended = func(data turns.TurnData) {
			ended <- data
			panic("an observer that panics")
		}
	})
	b.logged(t)
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		entered <- struct{}{}
		<-leave
		return turn.Commit(ctx, write(ctx, turn))
	})
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, entered)
	gone, err := b.Purge(t.Context(), key(t, "a"))
	require.NoError(t, err)
	assert.EqualValues(t, 1, gone)
	close(leave)
	data := await.Receive(t, await.Soon, ended)
	require.ErrorIs(t, data.Err, turns.ErrStale)
	assert.False(t, data.Committed)
	b.send(t, "a", "2")
	data = await.Receive(t, await.Soon, ended)
	require.NoError(t, data.Err, "the control: the next turn commits")
	assert.True(t, data.Committed)
	assert.Equal(t, "2", one[string](t, b.pool, "SELECT body FROM log"))
}
