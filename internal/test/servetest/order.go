package servetest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/lease"
)

// RequireOneOrder requires that waiters at several servers, which do not poll, are served in the
// order in which they came. The first server is active.
func RequireOneOrder(t *testing.T, peers []Peer) {
	t.Helper()
	held, err := peers[0].Client.Acquire(t.Context(), Ask("job", "holder"))
	require.NoError(t, err)
	const waiters = 8
	var wg sync.WaitGroup
	served := make(chan int, waiters)
	for i := range waiters {
		wg.Go(func() {
			client := peers[(i/2+1)%len(peers)].Client // two at one server, then two at the next
			l, err := client.AcquireWait(t.Context(), Ask("job", strconv.Itoa(i)), time.Minute)
			if assert.NoError(t, err) {
				served <- i
				assert.NoError(t, client.Release(t.Context(), l.Claim))
			}
		})
		AwaitWaiters(t, peers[0].Server, i+1)
	}
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	wg.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

// RequireNoOrder is the control: servers that do not know of each other, on stores behind a Spy,
// which is not a lease.Messenger, tell each other nothing.
func RequireNoOrder(t *testing.T, one, other lease.Store) {
	t.Helper()
	asked := make(chan struct{}, 2)
	first := NewPeer(t, &Spy{Store: one}, -1)
	second := NewPeer(t, &Spy{Store: other, After: func() { asked <- struct{}{} }}, -1)
	held, err := first.Client.Acquire(t.Context(), Ask("job", "holder"))
	require.NoError(t, err)
	const wait = 2 * time.Second
	waited := make(chan time.Duration)
	go func() {
		began := time.Now()
		_, _ = second.Client.AcquireWait(t.Context(), Ask("job", "waiter"), wait)
		waited <- time.Since(began)
	}()
	<-asked
	require.NoError(t, first.Client.Release(t.Context(), held.Claim))
	assert.GreaterOrEqual(t, <-waited, wait)
}

// Turns returns how long a waiter at one server waited for a lock while the queue at another server never
// ended, in several turns, each at most a patience.
func Turns(t *testing.T, busy, other Peer, patience time.Duration) (longest time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var grants atomic.Int64
	defer wg.Wait()
	defer stop()
	for i := range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := busy.Client.AcquireWait(ctx, Ask("job", "busy-"+strconv.Itoa(i)), time.Minute)
				if err != nil {
					continue
				}
				grants.Add(1)
				for ctx.Err() == nil && Waiters(t, busy.Server) < 2 {
					<-time.After(time.Millisecond)
				}
				_ = busy.Client.Release(context.WithoutCancel(ctx), l.Claim)
			}
		})
	}
	for range 3 {
		before := grants.Load()
		await.Until(t, patience, func() bool { return grants.Load() > before+10 }, "the busy one has no turn")
		began := time.Now()
		l, err := other.Client.AcquireWait(ctx, Ask("job", "other"), patience)
		require.NoError(t, err)
		longest = max(longest, time.Since(began))
		require.NoError(t, other.Client.Release(ctx, l.Claim))
	}
	return longest
}

// HandOvers passes one lock back and forth between two servers, b.N times. Each time is from a
// client's request to release it at one until the client that waits at the other has it.
func HandOvers(b *testing.B, peers []Peer) (times []time.Duration) {
	b.Helper()
	held, err := peers[0].Client.Acquire(b.Context(), Ask("job", "first"))
	require.NoError(b, err)
	b.ResetTimer()
	for i := range b.N {
		from, to := peers[i%2].Client, peers[(i+1)%2].Client
		got := make(chan lease.Lease)
		go func() {
			l, err := to.AcquireWait(b.Context(), Ask("job", strconv.Itoa(i)), time.Minute)
			assert.NoError(b, err)
			got <- l
		}()
		AwaitWaiters(b, peers[0].Server, 1)
		start := time.Now()
		require.NoError(b, from.Release(b.Context(), held.Claim))
		held = <-got
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	return times
}

// ReportTimes reports the median and the 99th percentile, with names that begin with what.
func ReportTimes(b *testing.B, what string, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(times[(len(times)-1)*p/100].Microseconds())/1000, what+"p"+strconv.Itoa(p)+"-ms")
	}
}
