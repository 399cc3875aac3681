package turns_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

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
