//go:build integration

package environment

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/namespace"
)

const patience = await.Patience

var agents = namespace.Must(1, "agent")

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }

// open opens a Locker of the test's mode that is closed at the end of the test.
func open(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	config.Wait = patience
	l, err := advisory.Open(t.Context(), lockmode.Of(t).Config(config))
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

// An outcome is what Acquire returned.
type outcome struct {
	lock *advisory.Lock
	err  error
}

// wait acquires in the background. The channel has room, so that nobody needs to
// receive from it.
func wait(ctx context.Context, l *advisory.Locker, key namespace.Key) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		lock, err := l.Acquire(ctx, key)
		done <- outcome{lock, err}
	}()
	return done
}

func receive(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	return await.Receive(t, patience, done, "the wait did not end")
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// requireLocks waits until the connection's database has so many advisory locks,
// granted and waited for.
func requireLocks(t *testing.T, conn *pgx.Conn, granted, waiting int) {
	t.Helper()
	await.Until(t, patience, func() bool {
		g, w, err := pgtest.CountLocks(context.Background(), conn, agents.ID(1))
		return err == nil && g == granted && w == waiting
	}, "%d granted and %d waiting", granted, waiting)
}

// requireLost waits for the loss of a lock.
func requireLost(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	ctx := lock.Context()
	await.Receive(t, patience, ctx.Done(), "the loss was not noticed")
	var lost *advisory.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	require.ErrorIs(t, lock.Release(), advisory.ErrLost)
}
