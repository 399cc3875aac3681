package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var agents = namespace.Must(1, "agent")

func open(t *testing.T, config advisory.Config) *advisory.Locker {
	l, err := advisory.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestSmoke(t *testing.T) {
	dsn := pgtest.DSN(t)
	a, b := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn})
	ctx := t.Context()
	la, err := a.Acquire(ctx, agents.ID(1))
	require.NoError(t, err)
	_, err = b.TryAcquire(ctx, agents.ID(1))
	t.Log(err)
	require.ErrorIs(t, err, advisory.ErrHeld)
	_, err = b.With(advisory.Options{Wait: 300 * time.Millisecond}).Acquire(ctx, agents.ID(1))
	t.Log(err)
	require.ErrorIs(t, err, advisory.ErrTimeout)
	go func() { time.Sleep(100 * time.Millisecond); la.Release() }()
	start := time.Now()
	lb, err := b.Acquire(ctx, agents.ID(1))
	t.Log(time.Since(start))
	require.NoError(t, err)
	require.NoError(t, lb.Release())
	all, err := a.AcquireAll(ctx, agents.ID(3), agents.ID(2), agents.ID(3))
	require.NoError(t, err)
	t.Log(all.Keys(), a.Stats())
	require.NoError(t, all.Release())
	s1, err := a.AcquireSlot(ctx, agents.ID(9), 2)
	require.NoError(t, err)
	s2, err := b.AcquireSlot(ctx, agents.ID(9), 2)
	require.NoError(t, err)
	_, err = b.With(advisory.Options{Wait: 300 * time.Millisecond}).AcquireSlot(ctx, agents.ID(9), 2)
	t.Log(err)
	require.ErrorIs(t, err, advisory.ErrTimeout)
	require.NoError(t, s1.Release())
	s3, err := b.With(advisory.Options{Wait: 3000 * time.Millisecond}).AcquireSlot(ctx, agents.ID(9), 2)
	require.NoError(t, err)
	require.NoError(t, s2.Release())
	require.NoError(t, s3.Release())
	err = a.Do(ctx, agents.ID(1), func(ctx context.Context) error {
		return a.Do(ctx, agents.ID(1), func(ctx context.Context) error { return nil })
	})
	t.Log(err)
	require.ErrorIs(t, err, advisory.ErrReentrant)
}
