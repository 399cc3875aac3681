package turns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/turns"
)

// A commit that finds no further message must not forget the entity while a sender has not committed its own.
func TestACommitBesideAnOpenSenderLosesNoMessage(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"with the sender's lock": false, "control: without it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{"IF pg_try_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity)) THEN": "IF true THEN"})
			}
			entered, leave := make(chan string, 2), make(chan struct{})
			b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
				entered <- texts(turn.Messages())
				<-leave
				return turn.Commit(ctx, nil)
			})
			b.send(t, "a", "1")
			await.Receive(t, await.Soon, entered)
			tx := b.begin(t)
			_, err := b.put(t, tx, "a", "2")
			require.NoError(t, err)
			close(leave)
			await.Until(t, await.Soon, func() bool { return b.bodies(t) == "" }, "the turn was committed")
			require.NoError(t, tx.Commit(t.Context()))
			if control {
				assert.Equal(t, "2", b.bodies(t))
				assert.Zero(t, one[int](t, b.pool, "SELECT count(*) FROM pglatch_turns.entities"), "nobody will look for it")
				return
			}
			assert.Equal(t, "2", await.Receive(t, await.Soon, entered))
		})
	}
}

func TestASendNotifiesOnlyIfNoServerLooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := pgtest.Connect(t, b.dsn)
	_, err := conn.Exec(t.Context(), `LISTEN "pglatch_turns/chat"`)
	require.NoError(t, err)
	next := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), await.Soon)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		require.NoError(t, err)
		return n.Payload
	}
	b.send(t, "a", "1")
	assert.Empty(t, next(), "nobody has looked")
	exec(t, b.pool, "UPDATE pglatch_turns.mailboxes SET awake_until = now() + interval '1 hour'")
	b.send(t, "a", "2")
	exec(t, b.pool, `NOTIFY "pglatch_turns/chat", 'sentinel'`)
	assert.Equal(t, "sentinel", next(), "somebody looks")
}

// A counter notes the statements of a pool.
type counter struct{ statements chan string }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	select {
	case c.statements <- data.SQL:
	default:
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		c.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: q.SQL})
	}
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// counted opens a pool whose statements a counter notes.
func counted(t *testing.T, dsn string) (*counter, *pgxpool.Pool) {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	c := &counter{make(chan string, 1000)}
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return c, pool
}

func TestAnIdleServerSendsOneStatementForEachLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, pool := counted(t, b.dsn)
	changed := b.config
	changed.Pool = pool
	box, err := turns.Open(t.Context(), changed)
	require.NoError(t, err)
	handled := make(chan struct{})
	serve(t, box, func(context.Context, *turns.Turn) error { close(handled); return nil })
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, handled)
	var claims int
	for looks := 0; looks < 3; { // three in a row
		if sql := await.Receive(t, await.Soon, c.statements); strings.Contains(sql, "pglatch_turns.look(") {
			looks++
		} else {
			looks, claims = 0, claims+strings.Count(sql, "pglatch_turns.claim(")
		}
	}
	assert.Positive(t, claims, "the control: a server that has found something claims")
}

func TestALostLockEndsTheTurnAndTheNodeGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.logged(t)
	entered, causes := make(chan struct{}, 2), make(chan error, 1)
	var first atomic.Bool
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		if first.CompareAndSwap(false, true) {
			entered <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		return turn.Commit(ctx, write(ctx, turn))
	})
	b.send(t, "a", "1")
	await.Receive(t, await.Soon, entered)
	exec(t, b.pool, `SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`)
	require.ErrorIs(t, await.Receive(t, await.Soon, causes), advisory.ErrLost)
	await.Until(t, await.Patience, func() bool { return b.count(t) == 1 && b.empty(t) }, "the node goes on under another name")
}

// Two texts of one entity have one key: they exclude each other, and are not mixed.
func TestTwoTextsWithOneKeySerialise(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *turns.Config) { c.Batch = 10 })
	const id = "6f1c9b0e-0000-4000-8000-00000000000a"
	var busy, overlaps atomic.Int32
	handled, leave := make(chan string, 10), make(chan struct{})
	for _, text := range []string{id, strings.ToUpper(id)} {
		for _, body := range []string{text[:2] + "1", text[:2] + "2"} {
			exec(t, b.pool, "SELECT pglatch_turns.pglatch_send('chat', $1, convert_to($2, 'UTF8'))", text, body)
		}
	}
	b.serve(t, func(_ context.Context, turn *turns.Turn) error {
		overlaps.Add(busy.Add(1) - 1)
		defer busy.Add(-1)
		handled <- texts(turn.Messages())
		<-leave
		return nil
	})
	got := []string{await.Receive(t, await.Soon, handled)}
	b.send(t, "another", "x")
	assert.Equal(t, "x", await.Receive(t, await.Soon, handled), "the control: another entity has its turn meanwhile")
	close(leave)
	got = append(got, await.Receive(t, await.Soon, handled))
	assert.ElementsMatch(t, []string{"6f1 6f2", "6F1 6F2"}, got)
	assert.EqualValues(t, 1, overlaps.Load(), "that of the control")
}

const serving = "serving"

type processConfig struct {
	DSN string
	TTL time.Duration // of the Locker's sessions; 0 = the default
}

// serveProcess takes a turn, says so, and commits when the context of the turn has ended.
func serveProcess(ctx context.Context, config processConfig) error {
	pool, err := pgxpool.New(ctx, config.DSN)
	if err != nil {
		return err
	}
	locker, err := advisory.Open(ctx, advisory.Config{DSN: config.DSN, LocksPerConn: 100, SessionTTL: config.TTL})
	if err != nil {
		return err
	}
	box, err := turns.Open(ctx, turns.Config{Pool: pool, Name: "chat", Namespace: conversations, Locker: locker, Concurrency: 1})
	if err != nil {
		return err
	}
	return box.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
		fmt.Println("has", texts(turn.Messages()))
		<-ctx.Done()
		err := turn.Commit(context.WithoutCancel(ctx), write(context.WithoutCancel(ctx), turn))
		fmt.Println("stale", errors.Is(err, turns.ErrStale))
		return err
	})
}

func TestAnotherNodeHasTheTurnOfAKilledProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.logged(t)
	b.send(t, "a", "1")
	p := proctest.Start(t, proctest.As(t, serving, processConfig{DSN: b.dsn}))
	p.Expect("has 1")
	attempts := make(chan int, 1)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		attempts <- turn.Attempt()
		return turn.Commit(ctx, write(ctx, turn))
	})
	// The control: while the process lives, this node has all turns but that one.
	b.send(t, "b", "2")
	require.Equal(t, 1, await.Receive(t, await.Soon, attempts))
	await.Until(t, await.Soon, func() bool { return b.count(t) == 1 })
	assert.Equal(t, "2", one[string](t, b.pool, "SELECT body FROM log"))
	p.Kill()
	assert.Equal(t, 2, await.Receive(t, await.Patience, attempts), "the attempt of the killed process counts")
	await.Until(t, await.Soon, func() bool { return b.count(t) == 2 && b.empty(t) })
}

func TestAStoppedProcessLosesItsTurnAndCommitsNothing(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	b := newBench(t)
	b.logged(t)
	b.send(t, "a", "1")
	p := proctest.Start(t, proctest.As(t, serving, processConfig{b.dsn, 2 * time.Second}))
	p.Expect("has 1")
	p.Signal(syscall.SIGSTOP)
	attempts := make(chan int, 1)
	b.serve(t, func(ctx context.Context, turn *turns.Turn) error {
		attempts <- turn.Attempt()
		return turn.Commit(ctx, write(ctx, turn))
	})
	assert.Equal(t, 2, await.Receive(t, await.Patience, attempts), "after the time of its session")
	await.Until(t, await.Soon, func() bool { return b.count(t) == 1 && b.empty(t) })
	p.Signal(syscall.SIGCONT)
	p.Expect("stale true")
	assert.Equal(t, 1, b.count(t), "once")
}

// Turns take no more of the server's lock table than their Locker may. Entities wait, and another application does not
// notice. In the control the Locker may take all of it.
func TestEntitiesWaitForAFullLockerAndAnotherApplicationDoesNot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ maxLocks, entities int }{
		"with MaxLocks": {30, 100}, "control: without a limit": {1 << 20, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "40", "max_locks_per_transaction": "10"}})
			dsn := server.DSN("")
			pool := newPool(t, dsn+"&pool_max_conns=10")
			locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, LocksPerConn: 10_000, MaxLocks: test.maxLocks})
			require.NoError(t, err)
			t.Cleanup(locker.Close)
			c := turns.Config{Pool: pool, Name: "chat", Namespace: conversations, Locker: locker, Concurrency: 10_000}
			box, err := turns.Open(t.Context(), c)
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context()))
			for i := 0; i < test.entities; i += 50 { // each is a lock until the commit
				exec(t, pool, "SELECT pglatch_turns.pglatch_send('chat', i::text, '') FROM generate_series($1::int, $1::int + 49) AS i", i)
			}
			other := newPool(t, dsn+"&pool_max_conns=5")
			exec(t, other, "CREATE TABLE event (at int) PARTITION BY LIST (at)")
			for i := range 100 {
				exec(t, other, fmt.Sprintf("CREATE TABLE event_%d PARTITION OF event FOR VALUES IN (%d)", i, i))
			}
			work := func() error { // a lock on each partition
				_, err := other.Exec(t.Context(), "SELECT count(*) FROM event")
				return err
			}

			var begun atomic.Int32
			leave := make(chan struct{})
			serve(t, box, func(context.Context, *turns.Turn) error {
				begun.Add(1)
				<-leave
				return nil
			})
			if test.maxLocks > test.entities {
				t.Cleanup(func() { close(leave) })
				await.Until(t, await.Patience, func() bool { return sqlstate.Of(work()) == sqlstate.OutOfMemory }, "the table is full")
				return
			}
			await.Until(t, await.Patience, func() bool { return locker.Stats().Locks == test.maxLocks }, "the Locker is full")
			require.NoError(t, work())
			beside := newLocker(t, dsn)
			for i := range 50 {
				lock, err := beside.TryAcquire(t.Context(), key(t, fmt.Sprint("beside ", i)))
				require.NoError(t, err)
				defer lock.Release()
			}
			assert.Less(t, int(begun.Load()), test.maxLocks, "the node has one, too")
			assert.Equal(t, test.entities, one[int](t, pool, "SELECT count(*) FROM pglatch_turns.messages"), "the others wait")
			assert.Zero(t, one[int](t, pool, "SELECT coalesce(max(attempts), 0) FROM pglatch_turns.entities WHERE state = 'ready'"), "which is no attempt")
			close(leave)
			await.Until(t, await.Patience, func() bool { return one[int](t, pool, "SELECT count(*) FROM pglatch_turns.messages") == 0 }, "all have their turn")
			assert.Zero(t, one[int](t, pool, "SELECT count(*) FROM pglatch_turns.dead"))
		})
	}
}
