package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
)

func TestAFollowerThatTellsWhoLeadsNeedsNoConnectionMore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a := newBackend(t, dsn, nil)
	lead(t, a, "a")
	var dials atomic.Int64
	b := newBackend(t, dsn, func(c *postgres.Config) {
		c.Connect = func(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
			dials.Add(1)
			return pgx.ConnectConfig(ctx, cc)
		}
	})
	e, err := leader.New(leader.Config{Name: "test", Backend: b, LeaseDuration: ttl, Retry: backoff.Fixed{Interval: 100 * time.Millisecond}})
	require.NoError(t, err)
	e.LeaderSeen()
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	looks, sessions := make(map[time.Time]bool), int64(0)
	await.Until(t, patience, func() bool {
		if now := dials.Load(); now != sessions { // a busy server can cost a session; then the looks begin again
			sessions = now
			clear(looks)
		}
		holder, ok, at := e.LeaderSeen()
		if ok {
			assert.Equal(t, "a", holder.Identity)
			assert.Equal(t, a.Term(), holder.Term)
			looks[at] = true
		}
		return len(looks) > 5
	})
	_, ok, err := e.Leader(t.Context()) // the control
	require.NoError(t, err)
	require.True(t, ok)
	assert.Greater(t, dials.Load(), sessions)
}

func TestANodeWithoutASessionDoesNotKnowWhoLeads(t *testing.T) {
	t.Parallel()
	b := newBackend(t, pgtest.DSN(t), nil)
	_, _, err := b.Observe(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
	_, err = b.Contested(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
}
