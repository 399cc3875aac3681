package leaseserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/lease"
)

// The lease was got for another sending of the request, and the server's machine was
// suspended before this one came: the store's clock ran on.
func TestALeaseThatWasGotBeforeASuspensionIsShorterByIt(t *testing.T) {
	t.Parallel()
	asked := boottime.Present()
	start := asked.Add(time.Second)
	for name, c := range map[string]struct{ suspended, remaining time.Duration }{
		"control":   {0, 59 * time.Minute},
		"suspended": {30 * time.Minute, 29 * time.Minute},
		"too long":  {time.Hour, 0},
	} {
		asked.Boot = start.Boot - time.Minute - c.suspended
		asked.Mono = start.Mono.Add(-time.Minute)
		l, waited, err := outcome{lease: lease.Lease{Remaining: time.Hour}, asked: asked}.since(start)
		require.NoError(t, err)
		assert.Zero(t, waited, name)
		assert.Equal(t, c.remaining, l.Remaining, name)
	}
}

// A suspension of the server's machine while a request waits does not make its lease
// count from a later moment than the client can be sure of.
func TestTheTimeThatARequestWaitedIsNotLonger(t *testing.T) {
	t.Parallel()
	start := boottime.Present()
	asked := start.Add(time.Second)
	asked.Boot += time.Hour
	_, waited, err := outcome{lease: lease.Lease{Remaining: time.Hour}, asked: asked}.since(start)
	require.NoError(t, err)
	assert.Equal(t, time.Second, waited)
}

// What waits knows by the clock that ran on that the lock can be free.
func TestALockIsNotKeptLongerThanItsLeaseByASuspension(t *testing.T) {
	t.Parallel()
	q := newQueue(&Config{MaxWaiters: 1}, nil)
	lq, w := q.join(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b"})
	lq.grant(lease.AcquireRequest{Holder: "a"}, outcome{lease: lease.Lease{Remaining: time.Hour}, asked: boottime.Present()})
	require.ErrorIs(t, q.giveUp(lq, w), lease.ErrHeld, "the control")
	lq.due.Boot -= time.Hour
	require.ErrorIs(t, q.giveUp(lq, w), errNotSaid)
}
