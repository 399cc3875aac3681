//go:build integration

package environment

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestLockersSurviveARestartOfTheServer(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		for name, restart := range map[string]func(context.Context) error{
			"fast":      func(ctx context.Context) error { return server.Restart(ctx, pgserver.Fast) },
			"immediate": func(ctx context.Context) error { return server.Restart(ctx, pgserver.Immediate) },
			"killed":    func(ctx context.Context) error { return errors.Join(server.Kill(), server.Start(ctx)) },
		} {
			t.Run(name, func(t *testing.T) { surviveRestart(t, server.DSN(""), restart) })
		}
	})
}

func surviveRestart(t *testing.T, dsn string, restart func(context.Context) error) {
	t.Helper()
	config := advisory.Config{DSN: dsn}
	holder, waiter, idle := open(t, config), open(t, config), open(t, config)
	lock := acquire(t, holder, agents.ID(1))
	waiting := wait(t.Context(), waiter, agents.ID(1))
	requireOneWaits(t, dsn)
	require.NoError(t, lock.Context().Err(), "nothing is lost before the restart")

	require.NoError(t, restart(t.Context()))
	requireLost(t, lock)
	o := receive(t, waiting)
	if o.err == nil {
		require.NoError(t, o.lock.Release())
	} else {
		require.True(t, errors.Is(o.err, advisory.ErrUnavailable) || errors.Is(o.err, advisory.ErrTimeout), "%v", o.err)
	}
	t.Logf("the waiter's error: %v", o.err)
	for _, l := range []*advisory.Locker{holder, waiter, idle} {
		requireRecovery(t, l)
	}
	direct := pgtest.Connect(t, dsn)
	requireExclusion(t, open(t, advisory.Config{DSN: dsn, ApplicationName: "holder"}), waiter, direct)
}

func TestWhileTheServerIsDownLocksAreUnavailable(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		locker := open(t, advisory.Config{DSN: server.DSN("")})
		require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
		nothing := func(context.Context) error { return nil }
		require.ErrorIs(t, locker.Do(t.Context(), agents.ID(1), nothing), advisory.ErrUnavailable)
		_, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: server.DSN("")}))
		require.ErrorIs(t, err, advisory.ErrUnavailable)

		require.NoError(t, server.Start(t.Context()))
		requireRecovery(t, locker)
	})
}

// requireOneWaits leaves no connection behind.
func requireOneWaits(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	requireLocks(t, conn, 1, 1)
}

// requireRecovery takes locks with a Locker that was open before the server was
// up again.
func requireRecovery(t *testing.T, l *advisory.Locker) {
	t.Helper()
	attempts := 0
	await.Until(t, patience, func() bool {
		attempts++
		err := l.Do(t.Context(), agents.ID(2), func(ctx context.Context) error { return ctx.Err() })
		if err != nil {
			t.Logf("attempt %d: %v", attempts, err)
			require.ErrorIs(t, err, advisory.ErrUnavailable)
		}
		return err == nil
	})
}
