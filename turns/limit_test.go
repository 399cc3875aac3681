package turns_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// refused sends in a transaction of its own, and reports whether the mailbox has too many messages.
func (b *bench) refused(t *testing.T, entity string) bool {
	t.Helper()
	tx := b.begin(t)
	_, err := b.put(t, tx, entity, "1")
	if err == nil {
		require.NoError(t, tx.Commit(t.Context()))
		return false
	}
	var limit *turns.LimitError
	require.ErrorAs(t, err, &limit)
	assert.Equal(t, "total", limit.What)
	require.NoError(t, tx.Rollback(t.Context()))
	return true
}

func total(n int) func(*turns.Config) { return func(c *turns.Config) { c.MaxTotal = n } }

func TestSendersCountTheMessagesOfAllEntitiesWhileNoServerDoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, total(3))
	for _, entity := range []string{"a", "b", "c"} {
		assert.False(t, b.refused(t, entity))
	}
	assert.True(t, b.refused(t, "d"))
	assert.True(t, b.refused(t, "a"))
	_, err := b.Purge(t.Context(), key(t, "a"))
	require.NoError(t, err)
	assert.False(t, b.refused(t, "d"), "there is room again")

	other := b.config
	other.Name, other.MaxTotal = "other", 0
	box, err := turns.Open(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	for range 5 {
		assert.False(t, (&bench{box, b.dsn, b.pool, other}).refused(t, "a"), "without a limit")
	}
}

func TestAServerCountsAndSendersCompare(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"counted": false, "control: nobody counts": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, total(2))
			b.send(t, "a", "1")
			b.send(t, "b", "1")
			if control { // a count of before, that nobody renews
				exec(t, b.pool, "UPDATE pglatch_turns.mailboxes SET count_next = now() + interval '1 hour'")
				assert.False(t, b.refused(t, "c"))
				return
			}
			release, began := make(chan struct{}), make(chan string, 10)
			b.serve(t, func(context.Context, *turns.Turn) error {
				began <- ""
				<-release
				return nil
			})
			await.Receive(t, await.Soon, began)
			await.Until(t, await.Soon, func() bool { return one[int](t, b.pool, "SELECT counted FROM pglatch_turns.mailboxes") == 2 })
			assert.True(t, b.refused(t, "c"))
			close(release)
			await.Until(t, await.Soon, func() bool { return !b.refused(t, "c") })
		})
	}
}

// Two senders count at the same time. One of them stores what it counted, and its transaction goes on.
func TestNoSenderWaitsForTheCountOfAnother(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"skips": false, "control: waits for the row": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, total(3))
			if control {
				without(t, b.pool, map[string]string{"b.count_next <= began FOR NO KEY UPDATE SKIP LOCKED": "b.count_next <= began FOR NO KEY UPDATE"})
			}
			for range 3 {
				b.send(t, "a", "1")
			}
			_, err := b.Purge(t.Context(), key(t, "a")) // the numbers say that there can be three: senders count
			require.NoError(t, err)
			first := b.begin(t)
			_, err = b.put(t, first, "a", "1")
			require.NoError(t, err)
			assert.Positive(t, one[int](t, b.pool, "SELECT count(*) FROM pg_locks WHERE mode = 'RowExclusiveLock' AND relation = 'pglatch_turns.mailboxes'::regclass"), "it stored the count")
			second := b.begin(t)
			_, err = second.Exec(t.Context(), "SET LOCAL lock_timeout = '300ms'")
			require.NoError(t, err)
			_, err = b.put(t, second, "b", "1")
			if control {
				assert.ErrorContains(t, err, "lock timeout")
				return
			}
			require.NoError(t, err)
			require.NoError(t, second.Commit(t.Context()))
			require.NoError(t, first.Commit(t.Context()))
		})
	}
}

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

func TestTheTablesOfTurnsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, turns.Schema()))
}
