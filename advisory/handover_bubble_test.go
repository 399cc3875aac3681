package advisory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
)

func TestALockPassesInsideTheProcessForTheBudgetOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		budget time.Duration
		want   string
	}{
		{"10 ms by default", 0, "aaabaaa"}, // three turns of 4 ms, then the other process
		{"6 ms", 6 * time.Millisecond, "aabaaaa"},
		{"never", -1, "abaaaaa"},
		{"an hour", time.Hour, "aaaaaab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				a, b := w.open(advisory.Config{HandOverBudget: tt.budget}), w.open(advisory.Config{})
				order := make(chan byte, 9)
				turn := func(l *advisory.Locker, name byte) {
					go func() {
						assert.NoError(w, l.Do(w.Context(), entity(1), func(context.Context) error {
							order <- name
							time.Sleep(4 * time.Millisecond)
							return nil
						}))
					}()
					synctest.Wait()
				}
				turn(a, 'a')
				turn(b, 'b')
				for range 5 {
					turn(a, 'a')
				}
				var got []byte
				for range len(tt.want) {
					got = append(got, <-order)
				}
				assert.Equal(w, tt.want, string(got))
				time.Sleep(time.Second)
			})
		})
	}
}

func TestAHandOverNeverChangesTheMode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ held, wanted advisory.Options }{
		{advisory.Options{}, shared},
		{shared, advisory.Options{}},
	} {
		inBubble(t, func(w *world) {
			a, b := w.open(advisory.Config{}), w.open(advisory.Config{})
			first, err := a.With(tt.held).Acquire(w.Context(), entity(1))
			require.NoError(w, err)
			local := w.beginAcquire(w.Context(), a.With(tt.wanted), 1)
			remote := w.beginAcquire(w.Context(), b, 1)
			w.release(first)
			lock := w.now(remote) // the server had the key in between
			w.assertWaits(local)
			w.release(lock)
			lock = w.now(local)
			assert.Equal(w, tt.wanted.Shared, lock.Shared())
			assert.Equal(w, tt.wanted.Shared, w.server.Holders(entity(1))[0].Mode == session.Shared)
			w.release(lock)
			assert.Zero(w, a.Stats().HandOvers)
		})
	}
}

func TestAHandOverKeepsTheServersLock(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		first := w.acquire(a, 1)
		pid := w.pidOf(1)
		p := w.beginAcquire(w.Context(), a, 1)
		w.release(first)
		lock := w.now(p)
		assert.Equal(w, pid, w.pidOf(1))
		assert.Equal(w, int64(1), a.Stats().HandOvers)
		assert.Equal(w, 1, a.Stats().SessionsInUse)
		w.release(lock)
	})
}

func TestALostLockIsNotHandedOver(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		a := w.open(advisory.Config{})
		first := w.acquire(a, 1)
		pid := w.pidOf(1)
		p := w.beginAcquire(w.Context(), a, 1)
		w.server.Kill(pid)
		require.ErrorIs(w, first.Release(), advisory.ErrLost)
		lock := w.now(p)
		assert.NotEqual(w, pid, w.pidOf(1))
		assert.Zero(w, a.Stats().HandOvers)
		w.release(lock)
	})
}
