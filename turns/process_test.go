package turns_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/turns"
)

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
