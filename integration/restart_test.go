//go:build integration

package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

func TestTheServerRestarts(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(context.Context, *pgserver.Server) error{
		"fast":      func(ctx context.Context, s *pgserver.Server) error { return s.Restart(ctx, pgserver.Fast) },
		"immediate": func(ctx context.Context, s *pgserver.Server) error { return s.Restart(ctx, pgserver.Immediate) },
		"kill -9": func(ctx context.Context, s *pgserver.Server) error {
			if err := s.Kill(); err != nil {
				return err
			}
			return s.Start(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{})
			holder, waiter := open(t, server.DSN(""), advisory.DefaultSessionTTL), open(t, server.DSN(""), advisory.DefaultSessionTTL)
			for _, l := range []*advisory.Locker{holder, waiter} { // idle connections that will be dead
				var idle []*advisory.Lock
				for i := range int64(5) {
					idle = append(idle, acquire(t, l, agents.ID(100+i)))
				}
				for _, lock := range idle {
					require.NoError(t, lock.Release())
				}
			}
			lock := acquire(t, holder, agents.ID(1))
			got := make(chan error, 1)
			go func() {
				got <- waiter.Do(t.Context(), agents.ID(1), func(context.Context) error { return nil })
			}()
			requireLocks(t, connect(t, server.DSN("")), 1, 1)
			require.NoError(t, restart(t.Context(), server))
			requireLost(t, lock, patience)
			if err := <-got; err != nil {
				require.ErrorIs(t, err, advisory.ErrUnavailable)
			}
			for _, l := range []*advisory.Locker{holder, waiter} {
				require.NoError(t, acquire(t, l, agents.ID(1)).Release())
				lock, err := l.TryAcquire(t.Context(), agents.ID(2))
				require.NoError(t, err)
				require.NoError(t, lock.Release())
			}
		})
	}
}
