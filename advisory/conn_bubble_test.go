package advisory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

// Both keys go back in one batch, and somebody waits for each: they may not go on with the
// one connection together.
func TestWaitersForTheKeysOfOneLockDoNotShareItsConnection(t *testing.T) {
	t.Parallel()
	inBubbleOf(t, 1, func(w *world) {
		l, other := w.open(advisory.Config{HandOverBudget: -1}), w.open(advisory.Config{})
		both := w.now(w.beginAll(w.Context(), l, 1, 2))
		foreign := []pending{w.beginAcquire(w.Context(), other, 1), w.beginAcquire(w.Context(), other, 2)}
		p, q := w.beginAcquire(w.Context(), l, 1), w.beginAcquire(w.Context(), l, 2)
		w.release(both)
		for _, f := range foreign {
			lock := w.now(f)
			time.Sleep(2 * time.Second)
			w.release(lock)
		}
		one, two := w.granted(p), w.granted(q)
		assert.NotEqual(w, one.PID(), two.PID())
		require.True(w, w.server.Kill(one.PID()))
		<-one.Lost()
		require.ErrorIs(w, one.Release(), advisory.ErrLost)
		w.release(two)
	})
}
