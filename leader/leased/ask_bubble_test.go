package leased_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
)

// within bounds a call as an Elector does.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// fail makes an attempt that the store's fault fails, after a second at most.
func fail(t *testing.T, b *leased.Backend, identity string) {
	t.Helper()
	won, err := b.TryAcquire(within(t, time.Second), identity, ttl)
	require.Error(t, err)
	require.False(t, won)
	require.ErrorIs(t, b.Renew(t.Context(), identity, ttl), leader.ErrLost, "an attempt that failed does not lead")
}

func TestAnAcquireWhoseAnswerWasLostIsGivenUpByRelease(t *testing.T) {
	t.Parallel()
	for kind, fault := range map[string]func(f *faulty, on bool){
		"by an error":               func(f *faulty, on bool) { f.lost = on },
		"and nothing shows it":      func(f *faulty, on bool) { f.hang = on },
		"as it were: it comes late": func(f *faulty, on bool) { f.late = map[bool]time.Duration{true: 3 * time.Second}[on] },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFaulty()
				a, b := newBackend(t, store), newBackend(t, store)
				store.set(func(f *faulty) { fault(f, true) })
				fail(t, a, "a")
				store.set(func(f *faulty) { fault(f, false) })
				refused(t, b, "b") // the control: it is held
				require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
				lead(t, b, "b")
			})
		})
	}
}

func TestAnAnswerThatIsLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a, b := newBackend(t, store), newBackend(t, store)
		store.set(func(f *faulty) { f.late = 3 * time.Second })
		fail(t, a, "a")
		store.set(func(f *faulty) { f.late = 0 })
		require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
		assert.Equal(t, 1, store.count(), "nothing was asked twice")
		lead(t, b, "b")
	})
}

func TestALateAnswerIsNoProofOfNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a := newBackend(t, store)
		store.set(func(f *faulty) { f.late = 3 * time.Second })
		fail(t, a, "a")
		store.set(func(f *faulty) { f.late = 0 })
		time.Sleep(ttl / 2)
		lead(t, a, "a")
		r := record(t, store)
		assert.Equal(t, ttl, r.Remaining, "it was prolonged")
		assert.Equal(t, uint64(1), r.Token)
	})
}

func TestAReleaseInVainLeavesNothingUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a, b := newBackend(t, store), newBackend(t, store)
		store.set(func(f *faulty) { f.hang = true })
		fail(t, a, "a")
		began := time.Now()
		require.ErrorIs(t, a.Release(within(t, 10*time.Second), "a"), context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, time.Since(began))
		store.set(func(f *faulty) {
			assert.Zero(t, f.underWay)
			f.hang = false
		})
		require.Equal(t, lease.Held, record(t, store).State)
		require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
		lead(t, b, "b")
	})
}
