package turns_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func TestAConfigErrorNamesTheFieldAndTheRemedy(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://localhost:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for field, change := range map[string]func(*turns.Config){
		"Config.Pool":        func(c *turns.Config) { c.Pool = nil },
		"Config.Name":        func(c *turns.Config) { c.Name = "Chat Box" },
		"Config.Namespace":   func(c *turns.Config) { c.Namespace = namespace.Namespace{} },
		"Config.Concurrency": func(c *turns.Config) { c.Concurrency = -1 },
		"Config.MaxAttempts": func(c *turns.Config) { c.MaxAttempts = -1 },
		"Config.Quiet":       func(c *turns.Config) { c.Quiet = time.Second },
		"Config.Pause":       func(c *turns.Config) { c.Pause = time.Nanosecond },
		"Config.OnDead":      func(c *turns.Config) { c.OnDead = 7 },
	} {
		c := turns.Config{Pool: pool, Name: "chat", Namespace: conversations}
		_, err := turns.Open(t.Context(), c)
		require.NoError(t, err, "the control")
		change(&c)
		_, err = turns.Open(t.Context(), c)
		var wrong *turns.ConfigError
		require.ErrorAs(t, err, &wrong, field)
		assert.Equal(t, field, wrong.Field)
		assert.NotEmpty(t, wrong.Remedy)
	}
	box, err := turns.Open(t.Context(), turns.Config{Pool: pool, Name: "chat", Namespace: conversations})
	require.NoError(t, err)
	var wrong *turns.ConfigError
	require.ErrorAs(t, box.Serve(t.Context(), func(context.Context, *turns.Turn) error { return nil }), &wrong)
	assert.Equal(t, "Config.Locker", wrong.Field)
}

func TestAMailboxIsNotReadyBeforeItsMigration(t *testing.T) {
	t.Parallel()
	pool := newPool(t, pgtest.DSN(t))
	open := func(name string, space namespace.Namespace) *turns.Mailbox {
		box, err := turns.Open(t.Context(), turns.Config{Pool: pool, Name: name, Namespace: space})
		require.NoError(t, err)
		return box
	}
	send := func(box *turns.Mailbox) error {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		_, err = box.Send(t.Context(), tx, key(t, "a"), turns.Message{})
		return err
	}
	chat := open("chat", conversations)
	require.ErrorIs(t, send(chat), turns.ErrNotReady, "no schema")
	require.NoError(t, chat.Migrate(t.Context()))
	require.NoError(t, chat.Migrate(t.Context()), "again")
	require.NoError(t, send(chat))
	require.ErrorIs(t, send(open("mail", conversations)), turns.ErrNotReady, "no mailbox")
	other := open("chat", namespace.Must(8, "other"))
	require.ErrorIs(t, other.Migrate(t.Context()), turns.ErrNotReady, "another namespace")
	require.ErrorIs(t, send(other), turns.ErrInvalid, "a key of another namespace")
}

func TestASchemaThatIsTooOldIsNotServedUntilItIsMigrated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exec(t, b.pool, "UPDATE pglatch_turns.store SET schema_version = 1")
	err := b.Serve(t.Context(), func(context.Context, *turns.Turn) error { return nil })
	require.ErrorIs(t, err, turns.ErrNotReady)
	require.ErrorContains(t, err, "run Mailbox.Migrate")
	require.NoError(t, b.Migrate(t.Context()))
	handled := make(chan string, 1)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		handled <- texts(turn.Messages())
		return nil
	})
	b.send(t, "a", "1")
	require.Equal(t, "1", await.Receive(t, await.Soon, handled))
}
