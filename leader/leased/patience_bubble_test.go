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

func TestAWaitThatIsCancelledEndsSoonWhateverThePollInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a := newBackend(t, q)
		b, err := leased.New(q, leased.Config{Name: name, PollInterval: 10 * time.Minute})
		require.NoError(t, err)
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- b.Wait(ctx) }()
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		require.ErrorIs(t, <-over, context.Canceled)
		assert.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}

// hasty is a WaitingStore that lets nobody wait.
type hasty struct {
	leased.Store
	asked int
}

func (h *hasty) AcquireWait(ctx context.Context, r lease.AcquireRequest, _ time.Duration) (lease.Lease, error) {
	h.asked++
	return h.Acquire(ctx, r)
}

func TestAStoreThatLetsNobodyWaitIsNotAskedAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hasty{Store: newFaulty()}
		a, b := newBackend(t, h), newBackend(t, h)
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithTimeout(t.Context(), 10*leased.DefaultPollInterval)
		defer cancel()
		require.Error(t, b.Wait(ctx))
		assert.LessOrEqual(t, h.asked, 11)
	})
}

func TestAnAttemptThatFailedLeadsNoMore(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	lead(t, a, "a")
	store.set(func(f *faulty) { f.refusal = errReset })
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.Error(t, err)
	store.set(func(f *faulty) { f.refusal = nil })
	require.ErrorIs(t, a.Renew(t.Context(), "a", ttl), leader.ErrLost)
	lead(t, a, "a")
}
