package turns_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/turns"
)

// count is how many rows the handlers have written.
func (b *bench) count(tb testing.TB) int {
	tb.Helper()
	return one[int](tb, b.pool, "SELECT count(*) FROM log")
}

func (b *bench) empty(tb testing.TB) bool {
	tb.Helper()
	return one[int](tb, b.pool, "SELECT (SELECT count(*) FROM pglatch_turns.entities) + (SELECT count(*) FROM pglatch_turns.messages)") == 0
}

func TestAFailedAttemptIsRepeatedUntilItIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":                               func() error { return errors.New("no model") },
		"panic":                               func() error { panic("no model") },
		"goexit":                              func() error { runtime.Goexit(); return nil },
		"an error that panics":                func() error { return hostileError{func() { panic("no text") }} },
		"an error that ends its goroutine":    func() error { return hostileError{runtime.Goexit} },
		"an observer that ends its goroutine": func() error { return errors.New("no model") },
		"a logger that panics":                func() error { return errors.New("no model") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := make(chan error, 10)
			b := newBench(t, func(c *turns.Config) {
				c.MaxAttempts = 3
				c.Observer.Ended = func(data turns.TurnData) {
					errs <- data.Err
					if name == "an observer that ends its goroutine" {
						runtime.Goexit()
					}
				}
				if name == "a logger that panics" {
					c.Logger = slog.New(hostileHandler{slog.DiscardHandler})
				}
			})
			b.logged(t)
			var attempts atomic.Int32
			ticket := b.send(t, "a", "bad", "m1")
			b.send(t, "a", "good")
			b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
				if texts(turn.Messages()) == "bad" {
					attempts.Add(1)
					return fail()
				}
				return turn.Commit(ctx, write(ctx, turn))
			})
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			outcome, err := b.Wait(ctx, ticket)
			require.NoError(t, err)
			assert.Equal(t, []any{turns.Dead, 3}, []any{outcome.State, outcome.Attempts})
			assert.NotEmpty(t, outcome.Error)
			panicked, ok := errors.AsType[*turns.PanicError](await.Receive(t, await.Soon, errs))
			assert.Equal(t, name == "panic", ok)
			if ok {
				assert.Contains(t, string(panicked.Stack), "TestAFailedAttempt", "where it panicked")
			}
			assert.EqualValues(t, 3, attempts.Load())
			await.Until(t, await.Soon, func() bool { return b.count(t) == 1 }, "the entity goes on")
		})
	}
}

type hostileError struct{ text func() }

func (e hostileError) Error() string {
	e.text()
	return ""
}

type hostileHandler struct{ slog.Handler }

func (hostileHandler) Enabled(context.Context, slog.Level) bool  { panic("no log") }
func (hostileHandler) Handle(context.Context, slog.Record) error { panic("no log") }

func TestABurstIsOneTurnAndABadMessageOfItDiesAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Batch = 10; c.MaxAttempts = 2 })
	for i := range 5 {
		b.send(t, "a", fmt.Sprint(i))
	}
	handled := make(chan string, 10)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		for _, m := range turn.Messages() {
			if string(m.Body) == "1" {
				return errors.New("bad")
			}
		}
		handled <- texts(turn.Messages())
		return nil
	})
	assert.Equal(t, "0", await.Receive(t, await.Soon, handled))
	assert.Equal(t, "2 3 4", await.Receive(t, await.Soon, handled))
	letters, err := b.DeadLetters(t.Context(), key(t, "a"), 0, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Equal(t, "1", string(letters[0].Message.Body))
}

func TestAShutdownLetsTurnsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Finish = time.Hour })
	b.logged(t)
	entered, leave, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stop := b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		close(entered)
		<-leave
		return turn.Commit(ctx, write(ctx, turn))
	})
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, entered)
	go func() { defer close(stopped); stop() }()
	close(leave)
	await.Receive(t, await.Soon, stopped)
	assert.Equal(t, 1, b.count(t))
	assert.Zero(t, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.nodes"))
}

func TestOnlyTheCurrentTurnCommits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		control bool
		rows    int
	}{"with the token": {false, 0}, "control: without the check of the token": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.logged(t)
			if test.control {
				without(t, b.pool, map[string]string{
					"IF NOT FOUND OR e.token <> p_token OR e.state <> 'running' THEN": "IF false THEN",
					"x.node = p_node AND x.token = p_token AND":                       "x.entity = p_entity AND",
					"e.node = p_node AND e.token = p_token AND":                       "e.entity = p_entity AND",
				})
			}
			entered, leave, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			var first atomic.Bool
			b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
				if !first.CompareAndSwap(false, true) {
					<-ctx.Done()
					return ctx.Err()
				}
				close(entered)
				<-leave
				err := turn.Commit(ctx, write(ctx, turn))
				result <- err
				return err
			})
			b.send(t, "a", "1")
			await.Receive(t, await.Soon, entered)
			// As if the node had been taken for dead, and another one had the turn.
			exec(t, b.pool, "UPDATE pglatch_turns.entities SET token = token + 1000")
			close(leave)
			err := await.Receive(t, await.Soon, result)
			if test.control {
				require.NoError(t, err)
			} else {
				var stale *turns.StaleError
				require.ErrorAs(t, err, &stale)
			}
			assert.Equal(t, test.rows, b.count(t))
			assert.Equal(t, 1-test.rows, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.messages"))
			exec(t, b.pool, "DELETE FROM pglatch_turns.entities")
		})
	}
}

func TestACommitThatMissesAMessageChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Batch = 10 })
	b.logged(t)
	b.send(t, "a", "1")
	b.send(t, "a", "2")
	results := make(chan error, 10)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		if len(turn.Messages()) == 2 {
			exec(t, b.pool, "DELETE FROM pglatch_turns.messages WHERE number = $1", turn.Messages()[1].Number)
		}
		err := turn.Commit(ctx, write(ctx, turn))
		results <- err
		return err
	})
	require.ErrorIs(t, await.Receive(t, await.Soon, results), turns.ErrStale)
	require.NoError(t, await.Receive(t, await.Soon, results))
	assert.Equal(t, 1, b.count(t))
}

func TestACommitThatEndsItsTransactionIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, "a", "1")
	results := make(chan error, 10)
	var hostile atomic.Int32
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		err := turn.Commit(ctx, func(tx pgx.Tx) error {
			switch hostile.Add(1) {
			case 1:
				return tx.Commit(ctx)
			case 2:
				_, err := tx.Exec(ctx, "COMMIT; BEGIN")
				return err
			case 3:
				_, err := turn.More(ctx)
				assert.ErrorIs(t, err, turns.ErrStale)
				assert.ErrorIs(t, turn.Commit(ctx, nil), turns.ErrStale)
			}
			return nil
		})
		results <- err
		return err
	})
	for range 2 {
		var ended *turns.TxEndedError
		require.ErrorAs(t, await.Receive(t, await.Soon, results), &ended)
	}
	require.NoError(t, await.Receive(t, await.Soon, results))
	await.Until(t, await.Soon, func() bool { return b.empty(t) })
}

func TestServeIsNoErrorIfItsContextEndsBeforeItHasStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, b.Serve(ctx, func(context.Context, *turns.Turn) error { return nil }))
}

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
