package turnstest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/turns"
	"github.com/pglatch/pglatch/turns/turnstest"
)

func TestTheServerInMemoryConforms(t *testing.T) {
	t.Parallel()
	turnstest.Run(t, turnstest.Harness{New: func(*testing.T) turnstest.Database { return turnstest.NewServer() }, Around: synctest.Test})
}

func TestATestSeesTheStatementsThatWereCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := turnstest.NewServer()
		p, err := server.Open(turns.Config{Name: "chat", Namespace: chats})
		require.NoError(t, err)
		defer p.Close()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- p.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
				return turn.Commit(ctx, func(tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, "INSERT INTO replies VALUES ($1, $2)", turn.Messages()[0].Number, string(turn.Messages()[0].Body))
					assert.EqualValues(t, 1, tag.RowsAffected())
					if turn.Attempt() == 1 {
						return assert.AnError // what it did is rolled back
					}
					return err
				})
			})
		}()
		start := time.Now()
		ticket, err := p.Post(ctx, chats.ID(7), turns.Message{ID: "1", Body: []byte("hello")})
		require.NoError(t, err)
		o, err := p.Wait(ctx, ticket)
		require.NoError(t, err)
		assert.Equal(t, turns.Done, o.State)
		assert.Equal(t, []turnstest.Statement{{SQL: "INSERT INTO replies VALUES ($1, $2)", Args: []string{"1", "hello"}}}, server.Statements())
		assert.Less(t, time.Since(start), 3*time.Second, "by the clock of the bubble: the pause of the first attempt")
		assert.Empty(t, server.Locks().Holders(chats.ID(7)))
		stop()
		require.NoError(t, <-served)
	})
}
