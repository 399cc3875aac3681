package advisory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/namespace"
)

func TestASessionNeverReentersALockOfAnotherAcquisition(t *testing.T) {
	t.Parallel()
	for _, locksPerConn := range []int{1, 2, many} {
		inBubbleOf(t, locksPerConn, func(w *world) {
			l, f := w.openFaulty(advisory.Config{}) // whose sessions find it
			first := w.acquire(l, 1)
			_, err := l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld)
			second := w.beginAcquire(w.Context(), l, 1)
			w.assertWaits(second)
			w.release(first)
			w.release(w.granted(second))

			answer := make(chan struct{})
			f.onTry = func(namespace.Tag) error { <-answer; return nil }
			first, third := nil, w.beginAcquire(w.Context(), l, 1)
			_, err = l.TryAcquire(w.Context(), entity(1))
			require.ErrorIs(w, err, advisory.ErrHeld, "it is asked for")
			close(answer)
			first = w.granted(third)
			w.release(first)
		})
	}
}

// The control: the server itself lets a session in again, and that is found.
func TestTheServerLetsASessionInAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: memory.NewServer()}
		f := &faulty{Source: w.server.Source("bare")}
		s, err := f.Acquire(t.Context())
		require.NoError(t, err)
		defer s.Close(false)
		try := func() *session.Op { return &session.Op{Tag: entity(9).Tag()} }
		for i, want := range []error{nil, errReentered} {
			o := try()
			require.ErrorIs(t, s.Do([]*session.Op{o}, time.Second), want, i)
			assert.True(t, o.Held, "a session re-enters its own lock")
		}
	})
}
