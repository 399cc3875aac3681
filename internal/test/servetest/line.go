package servetest

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// NewPeers returns servers that know of each other, one on each of the stores. heard receives their
// messages, through another messenger.
func NewPeers(tb testing.TB, poll time.Duration, through lease.Messenger, stores ...lease.Store) (peers []Peer, heard *Tap) {
	tb.Helper()
	heard = NewTap(tb, through)
	for _, store := range stores {
		peers = append(peers, NewPeer(tb, store, poll))
	}
	heard.Await("hello", len(peers))
	heard.Await("alive", len(peers))
	return peers, heard
}

// RequireOneLine requires that waiters at two servers, which do not poll, are served in the order
// in which they came.
func RequireOneLine(t *testing.T, peers []Peer, heard *Tap) {
	t.Helper()
	held, err := peers[0].Client.Acquire(t.Context(), Ask("job", "holder"))
	require.NoError(t, err)
	const waiters = 8
	var wg sync.WaitGroup
	served := make(chan int, waiters)
	for i := range waiters {
		wg.Go(func() {
			client := peers[(i/2+1)%2].Client // two at one server, then two at the other
			l, err := client.AcquireWait(t.Context(), Ask("job", strconv.Itoa(i)), time.Minute)
			if assert.NoError(t, err) {
				served <- i
				assert.NoError(t, client.Release(t.Context(), l.Claim))
			}
		})
		heard.Await("wait", i+1)
	}
	heard.awaitOrder(len(peers), waiters)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	wg.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
}

// RequireNoLine is the control: servers on stores behind a Spy, which is not a lease.Messenger,
// send each other no messages.
func RequireNoLine(t *testing.T, one, other lease.Store) {
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

// HandOvers passes one lock back and forth between two servers, b.N times. Each time is from a
// client's request to release it at one until the client that waits at the other has it.
func HandOvers(b *testing.B, peers []Peer, heard *Tap) (times []time.Duration) {
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
		heard.Await("wait", i+1)
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
