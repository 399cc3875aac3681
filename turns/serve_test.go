package turns_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
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

func TestMessagesOfEachEntityAreHandledOnceInOrderOnTwoNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.logged(t)
	const entities, each = 10, 12
	var busy sync.Map
	var overlaps atomic.Int32
	handler := func(ctx context.Context, turn *turns.Turn) error {
		if _, loaded := busy.LoadOrStore(turn.Entity().Entity(), true); loaded {
			overlaps.Add(1)
		}
		defer busy.Delete(turn.Entity().Entity())
		return turn.Commit(ctx, write(ctx, turn))
	}
	b.serve(t, handler)
	other := b.config
	other.Locker = newLocker(t, b.dsn)
	box, err := turns.Open(t.Context(), other)
	require.NoError(t, err)
	serve(t, box, handler)
	var senders sync.WaitGroup
	for i := range entities {
		senders.Go(func() {
			for j := range each {
				b.send(t, fmt.Sprintf("c%d", i), fmt.Sprint(j))
			}
		})
	}
	senders.Wait()
	await.Until(t, await.Patience, func() bool { return b.count(t) == entities*each && b.empty(t) }, "all are handled")
	assert.Zero(t, overlaps.Load())
	assert.Zero(t, one[int](t, b.pool, `SELECT count(*) FROM (SELECT body::int - lag(body::int, 1, -1) OVER (PARTITION BY entity ORDER BY n) AS step FROM log) s WHERE step <> 1`))
}

func TestATurnHoldsTheMutexOfItsEntity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, leave := make(chan context.Context), make(chan struct{})
	b.serve(t, func(ctx context.Context, _ *turns.Turn) error {
		entered <- ctx
		<-leave
		return nil
	})
	b.send(t, "a", "1")
	ctx := await.Receive(t, await.Soon, entered)
	locker := newLocker(t, b.dsn)
	_, err := locker.TryAcquire(t.Context(), key(t, "a"))
	require.ErrorIs(t, err, advisory.ErrHeld)
	_, err = b.config.Locker.Acquire(ctx, key(t, "a"))
	require.ErrorIs(t, err, advisory.ErrReentrant, "the context carries the lock")
	close(leave)
	await.Until(t, await.Soon, func() bool { return b.empty(t) })

	// The other way round: no turn begins while somebody else has the mutex.
	lock, err := locker.Acquire(t.Context(), key(t, "a"))
	require.NoError(t, err)
	b.send(t, "a", "2")
	b.send(t, "b", "3")
	ctx = await.Receive(t, await.Soon, entered, "that of b")
	require.Error(t, b.holds(ctx, t, "b"))
	require.NoError(t, lock.Release())
	await.Receive(t, await.Soon, entered, "that of a")
}

// holds returns an error if the context carries the lock of an entity.
func (b *bench) holds(ctx context.Context, tb testing.TB, entity string) error {
	tb.Helper()
	lock, err := b.config.Locker.TryAcquire(ctx, key(tb, entity))
	if err == nil {
		_ = lock.Release()
	}
	return err
}

func TestAFailedAttemptIsRepeatedUntilItIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("no model") },
		"panic":  func() error { panic("no model") },
		"goexit": func() error { runtime.Goexit(); return nil },
		"a hostile error": func() error {
			return hostileError{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := make(chan error, 10)
			b := newBench(t, func(c *turns.Config) {
				c.MaxAttempts = 3
				c.Observer.Ended = func(data turns.TurnData) { errs <- data.Err }
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

type hostileError struct{}

func (hostileError) Error() string { panic("no text") }

func TestADeadLetterCanStopItsEntity(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.MaxAttempts = 1; c.OnDead = turns.Stop })
	var broken atomic.Bool
	broken.Store(true)
	handled := make(chan string, 10)
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		if broken.Load() {
			return errors.New("broken")
		}
		handled <- texts(turn.Messages())
		return nil
	})
	b.send(t, "a", "1")
	letters := func() []turns.DeadLetter {
		found, err := b.DeadLetters(t.Context(), key(t, "a"), 0, 10)
		require.NoError(t, err)
		return found
	}
	await.Until(t, await.Soon, func() bool { return len(letters()) == 1 })
	b.send(t, "a", "2")
	stats, err := b.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 1, 0, 1}, []int64{stats.Stopped, stats.Dead, stats.Running, stats.Nodes})
	broken.Store(false)
	require.NoError(t, b.Retry(t.Context(), letters()[0].Message.Number))
	assert.Equal(t, "1", await.Receive(t, await.Soon, handled), "in its place")
	assert.Equal(t, "2", await.Receive(t, await.Soon, handled))
	require.ErrorIs(t, b.Retry(t.Context(), 999), turns.ErrNotFound)

	broken.Store(true)
	b.send(t, "a", "3")
	await.Until(t, await.Soon, func() bool { return len(letters()) == 1 })
	b.send(t, "a", "4")
	broken.Store(false)
	require.NoError(t, b.Skip(t.Context(), letters()[0].Message.Number))
	assert.Equal(t, "4", await.Receive(t, await.Soon, handled))
}

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

func TestWhatComesDuringATurnCanBePartOfItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	entered, steered := make(chan struct{}), make(chan struct{})
	handled := make(chan string, 10)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		if texts(turn.Messages()) == "1" {
			close(entered)
			<-steered
			more, err := turn.More(ctx)
			if err != nil {
				return err
			}
			handled <- "more " + texts(more)
		}
		turn.SetValue([]byte("ok"))
		handled <- texts(turn.Messages())
		return turn.Commit(ctx, nil)
	})
	b.send(t, "a", "1", "one")
	await.Receive(t, await.Soon, entered)
	ticket := b.send(t, "a", "2", "two")
	close(steered)
	assert.Equal(t, "more 2", await.Receive(t, await.Soon, handled))
	assert.Equal(t, "1 2", await.Receive(t, await.Soon, handled))
	ctx, cancel := context.WithTimeout(t.Context(), await.Soon)
	defer cancel()
	outcome, err := b.Wait(ctx, ticket)
	require.NoError(t, err)
	assert.Equal(t, turns.Outcome{State: turns.Done, Value: []byte("ok")}, outcome)
	b.send(t, "a", "3")
	assert.Equal(t, "3", await.Receive(t, await.Soon, handled), "the next turn has the next message")
}

func TestAnInterruptEndsTheTurnOnAnotherNode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.ErrorIs(t, b.Interrupt(t.Context(), key(t, "a"), "stop"), turns.ErrNotRunning)
	entered, causes := make(chan struct{}), make(chan error, 1)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		close(entered)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return turn.Commit(context.WithoutCancel(ctx), nil)
	})
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, entered)
	other, err := turns.Open(t.Context(), turns.Config{Pool: newPool(t, b.dsn), Name: "chat", Namespace: conversations})
	require.NoError(t, err)
	require.NoError(t, other.Interrupt(t.Context(), key(t, "a"), "user pressed stop"))
	cause := await.Receive(t, await.Soon, causes)
	require.ErrorIs(t, cause, turns.ErrInterrupted)
	assert.ErrorContains(t, cause, "user pressed stop")
	await.Until(t, await.Soon, func() bool { return b.empty(t) }, "the commit of the handler counts")
}

func TestAShutdownLetsTurnsEndAndHandsOverTheRest(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]time.Duration{"in time": time.Hour, "at once": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *turns.Config) { c.Finish = finish })
			b.logged(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			stop := b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
				close(entered)
				select {
				case <-leave:
				case <-ctx.Done():
					assert.ErrorIs(t, context.Cause(ctx), turns.ErrShutdown)
					return ctx.Err()
				}
				return turn.Commit(ctx, write(ctx, turn))
			})
			b.send(t, "a", "1")
			await.Receive(t, await.Soon, entered)
			if finish > 0 {
				ctx, cancel := context.WithCancel(t.Context())
				go func() { defer cancel(); stop() }()
				close(leave)
				<-ctx.Done()
				assert.Equal(t, 1, b.count(t))
				return
			}
			stop()
			assert.Zero(t, b.count(t))
			assert.Equal(t, "ready 0", one[string](t, b.pool, "SELECT state || ' ' || attempts FROM pglatch_turns.entities"), "the attempt does not count")
			assert.Zero(t, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.nodes"))
		})
	}
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
