//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/namespace"
)

const patience = await.Patience

var agents = namespace.Must(1, "agent")

func TestMain(m *testing.M) {
	if role := os.Getenv("PGLATCH_CHILD"); role != "" {
		if err := children[role](context.Background(), os.Getenv("PGLATCH_CHILD_DSN")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m)
}

// open opens a Locker of the test's mode that is closed at the end of the test. Its
// sessions live for ttl.
func open(t *testing.T, dsn string, ttl time.Duration) *advisory.Locker {
	t.Helper()
	l, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: dsn, SessionTTL: ttl, Wait: patience}))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func acquire(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	return lock
}

// locks counts the advisory locks of the connection's database, granted and
// waited for.
func locks(t *testing.T, conn *pgx.Conn) (granted, waiting int) {
	t.Helper()
	granted, waiting, err := pgtest.CountLocks(context.Background(), conn, agents.ID(1))
	require.NoError(t, err)
	return granted, waiting
}

// requireLocks waits until the database has so many locks.
func requireLocks(t *testing.T, conn *pgx.Conn, granted, waiting int) {
	t.Helper()
	await.Until(t, patience, func() bool {
		g, w := locks(t, conn)
		return g == granted && w == waiting
	})
}

// requireLost waits for the loss of a lock.
func requireLost(t *testing.T, lock *advisory.Lock, within time.Duration) {
	t.Helper()
	ctx := lock.Context()
	await.Receive(t, within, ctx.Done(), "the loss was not noticed within %v", within)
	var lost *advisory.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	require.ErrorIs(t, lock.Release(), advisory.ErrLost)
}

// modeVariable names a child's mode: that of the test that starts it.
const modeVariable = "PGLATCH_CHILD_MODE"

var children = map[string]func(ctx context.Context, dsn string) error{
	"hold":         holdUntilKilled(session.DefaultTTL),
	"hold briefly": holdUntilKilled(childTTL),
	"wait":         waitUntilKilled,
	"act":          actAfterEachPause,
	"raw":          holdWithoutLease,

	"look Err":     lookAfterAPause(looks["Err"]),
	"look Done":    lookAfterAPause(looks["Done"]),
	"look Lost":    lookAfterAPause(looks["Lost"]),
	"look Value":   lookAfterAPause(looks["Value"]),
	"look derived": lookAfterAPause(looks["derived"]),
	"guarded":      leadAndGuard,

	"transaction":           lockInATransaction(1, "1s"),
	"transaction unbounded": lockInATransaction(2, "0"),
}

// start runs this program as a child in one of the roles; the words before run its command line.
func start(t *testing.T, role, dsn string, before ...string) *proctest.Process {
	t.Helper()
	env := []string{"PGLATCH_CHILD=" + role, "PGLATCH_CHILD_DSN=" + dsn}
	if role != "guarded" { // an election has no mode
		env = append(env, modeVariable+"="+lockmode.Of(t).Name)
	}
	return proctest.Start(t, proctest.Under(t, before, env...))
}

// childTTL is that of children whose sessions the server is to end soon.
const childTTL = 2 * time.Second

func childLocker(ctx context.Context, dsn string, ttl time.Duration) (*advisory.Locker, error) {
	mode, ok := lockmode.Named(os.Getenv(modeVariable))
	if !ok {
		return nil, errors.New("a child without a mode")
	}
	return advisory.Open(ctx, mode.Config(advisory.Config{DSN: dsn, SessionTTL: ttl, Wait: patience}))
}

// holdUntilKilled says "held", and how the lock's context ended, and then whether
// the lock ever came back.
func holdUntilKilled(ttl time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, dsn string) error {
		l, err := childLocker(ctx, dsn, ttl)
		if err != nil {
			return err
		}
		lock, err := l.Acquire(ctx, agents.ID(1))
		if err != nil {
			return err
		}
		fmt.Println("held")
		<-lock.Context().Done()
		fmt.Println("lost", context.Cause(lock.Context()))
		for range time.Tick(100 * time.Millisecond) {
			if lock.Context().Err() == nil || l.Stats().Held != 0 {
				fmt.Println("holds again")
			} else {
				fmt.Println("not held")
			}
		}
		return nil
	}
}

func waitUntilKilled(ctx context.Context, dsn string) error {
	l, err := childLocker(ctx, dsn, session.DefaultTTL)
	if err != nil {
		return err
	}
	fmt.Println("waiting")
	if _, err = l.Acquire(ctx, agents.ID(1)); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

// aPause is longer than a session lives: nobody holds a lock after one.
const aPause = childTTL * 3 / 2

// actAfterEachPause acts all the time while its lock is held. It says "pause" for
// each act that comes after a pause, and what the act found.
func actAfterEachPause(ctx context.Context, dsn string) error {
	l, err := childLocker(ctx, dsn, childTTL)
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, agents.ID(1))
	if err != nil {
		return err
	}
	work := lock.Context()
	fmt.Println("held")
	last := time.Now()
	for range time.Tick(10 * time.Millisecond) {
		if time.Since(last) >= aPause {
			err := work.Err()
			fmt.Println("pause", err, context.Cause(work))
		}
		last = time.Now()
	}
	return nil
}

// holdWithoutLease holds a plain advisory lock, whose session no timeout ends.
func holdWithoutLease(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(99, 1)"); err != nil {
		return err
	}
	fmt.Println("held")
	_, err = conn.WaitForNotification(ctx)
	return err
}
