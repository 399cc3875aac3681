package leasehttp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestASlotIsKeptByHeartbeatsAndReleasedOnce(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	slots := leasehttp.AcquireOptions{Slots: 2, TTL: time.Minute, MaxWait: servetest.Bound}
	l, err := cl.AcquireWithRetry(t.Context(), "job", "a", slots)
	require.NoError(t, err)
	assert.Equal(t, 1, l.Share().Slot)
	assert.Equal(t, "job", l.Share().Lock)
	assert.Positive(t, l.Share().Fence)
	assert.Positive(t, l.Remaining())
	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: 10 * time.Millisecond})
	expires := l.Last().ExpiresAt
	await.Until(t, await.Soon, func() bool { return l.Last().ExpiresAt.After(expires) })
	require.NoError(t, work.Err())
	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	record, err := store.Get(t.Context(), shared.SlotName("job", 1))
	require.NoError(t, err)
	assert.Equal(t, lease.Free, record.State)
}

func TestReadersShareALockAndAWriterHasItAlone(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	once := leasehttp.AcquireOptions{MaxAttempts: 1, NoLongPoll: true, Shared: true}
	alone := once
	alone.Shared, alone.Exclusive = false, true
	for _, reader := range []string{"a", "b"} {
		l, err := cl.AcquireWithRetry(t.Context(), "job", reader, once)
		require.NoError(t, err)
		defer func() { assert.NoError(t, cl.ReleaseOnce(t.Context(), l)) }()
	}
	_, err := cl.AcquireWithRetry(t.Context(), "job", "writer", alone)
	require.ErrorIs(t, err, lease.ErrHeld)
	writer, err := cl.AcquireWithRetry(t.Context(), "other", "writer", alone)
	require.NoError(t, err)
	_, err = cl.AcquireWithRetry(t.Context(), "other", "reader", once)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, cl.ReleaseOnce(t.Context(), writer))
	alone.Shared = true
	_, err = cl.AcquireWithRetry(t.Context(), "other", "both", alone)
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestAShareWhoseAnswerWasLostIsGotAgain(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
		r := shared.Request{AcquireRequest: servetest.Ask("job", "a"), Slots: 3, Exclusive: exclusive}
		if exclusive {
			r.Slots = 0
		}
		transport.lose = 2
		s, err := cl.AcquireShare(t.Context(), r, 0)
		require.NoError(t, err)
		assert.Len(t, transport.sent, 3)
		assert.Equal(t, uint64(1), s.Token, "the lost answers were of the same lease")
		require.NoError(t, cl.Release(t.Context(), s.Claim))
		all := shared.Request{AcquireRequest: servetest.Ask("job", "b"), Exclusive: true}
		_, err = cl.AcquireShare(t.Context(), all, 0)
		require.NoError(t, err, "nothing else was taken")
	}
}
