package advisory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// waitsForOne is a Tracer that passes on when a request for agent 1 begins to wait.
type waitsForOne chan struct{}

func (w waitsForOne) tracer() advisory.Tracer {
	return advisory.Tracer{Wait: func(_ context.Context, d advisory.WaitData) {
		if d.Key == agents.ID(1) {
			w <- struct{}{}
		}
	}}
}

// A caller requests a key in shared mode. A reader of that key waits for a key that the caller
// holds.
func TestReadersOfOneKeyOnAServerAreNoDeadlock(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		waiting := make(waitsForOne, 1)
		l := open(t, advisory.Config{DSN: pgtest.DSN(t), HandOverBudget: -1, Tracer: waiting.tracer()})
		readers := l.With(advisory.Options{Shared: true})
		one, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		two, err := readers.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		write := make(chan error, 1)
		go func() {
			write <- l.Do(two.Context(), agents.ID(1), func(context.Context) error { return nil })
		}()
		<-waiting
		require.NoError(t, readers.Do(one.Context(), agents.ID(2), func(context.Context) error { return nil }))
		require.NoError(t, one.Release())
		require.NoError(t, <-write)

		// A control: the same with writers is a deadlock.
		one, err = readers.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		go func() { write <- l.Do(two.Context(), agents.ID(1), func(context.Context) error { return nil }) }()
		<-waiting
		err = l.Do(one.Context(), agents.ID(2), func(context.Context) error { return nil })
		require.ErrorIs(t, err, advisory.ErrDeadlock)
		require.NoError(t, one.Release())
		require.NoError(t, <-write)
		require.NoError(t, two.Release())
	})
}
