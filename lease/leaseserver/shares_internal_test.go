package leaseserver

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestTheReleaseOfASlotWakesWhoWaitsForAnyOfTheLock(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry(), PollInterval: -1})
	require.NoError(t, err)
	r := shared.Request{AcquireRequest: lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour}, Slots: 2}
	_, err = s.shares.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	second, err := s.shares.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	await, stop, err := shareStore{s.queue}.Watch(ctx, "job")
	require.NoError(t, err)
	assert.Equal(t, 1, s.queue.length())
	require.NoError(t, s.queue.release(t.Context(), second.Claim))
	require.NoError(t, await(time.Hour))
	cancel()
	require.ErrorIs(t, await(time.Hour), context.Canceled)
	stop()
	assert.Zero(t, s.queue.length())
	assert.Empty(t, s.queue.locks)
}

func TestWhoWaitsForASlotHearsThatTheServerShutsDown(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry()})
	require.NoError(t, err)
	await, stop, err := shareStore{s.queue}.Watch(t.Context(), "job")
	require.NoError(t, err)
	defer stop()
	require.NoError(t, s.Shutdown(t.Context()))
	require.ErrorIs(t, await(time.Hour), lease.ErrBusy)
}

func TestWithTooManyWaitersNobodyWaitsForASlot(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Store: leasetest.NewStore(), Registry: prometheus.NewRegistry(), MaxWaiters: 1})
	require.NoError(t, err)
	_, stop, err := shareStore{s.queue}.Watch(t.Context(), "other")
	require.NoError(t, err)
	defer stop()
	_, _, err = shareStore{s.queue}.Watch(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrBusy)
}
