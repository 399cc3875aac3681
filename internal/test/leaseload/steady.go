package leaseload

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A Steady is clients of several lock servers that wait for locks, and may see no error. Each client begins
// with another server, and knows all of them.
type Steady struct {
	t    *testing.T
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	turns   int
	longest time.Duration
}

// StartSteady starts clients of the servers at urls, on a quarter as many locks.
func StartSteady(t *testing.T, urls []string, clients int) *Steady {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &Steady{t: t, stop: stop}
	t.Cleanup(s.all.Wait)
	t.Cleanup(stop)
	for i := range clients {
		first := i % len(urls)
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: append(append([]string{}, urls[first:]...), urls[:first]...)})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		s.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.turn(client, lease.AcquireRequest{Name: fmt.Sprint("job-", i%(clients/4)), Holder: fmt.Sprint(i, "-", n), TTL: time.Minute})
			}
		})
	}
	return s
}

func (s *Steady) turn(client *leasehttp.Client, r lease.AcquireRequest) {
	ctx := context.WithoutCancel(s.t.Context()) // the last turn ends in order
	began := time.Now()
	l, err := client.AcquireWait(ctx, r, time.Minute)
	took := time.Since(began)
	if err == nil {
		err = client.Release(ctx, l.Claim)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	s.longest = max(s.longest, took)
	if !assert.NoError(s.t, err, r.Holder) {
		s.stop()
	}
}

// Await waits for so many more turns.
func (s *Steady) Await(more int) {
	s.t.Helper()
	from := s.count()
	await.Until(s.t, 3*time.Minute, func() bool { return s.count() >= from+more || s.t.Failed() }, "nobody is served")
}

func (s *Steady) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns
}

// longestWait is the goal for a wait over a restart in order. Alone on two cores it takes a quarter of
// that. A busy machine can miss it. So the wait is only logged, and fails the test at a multiple that no
// scheduling explains: a client was forgotten.
const (
	longestWait = 2 * time.Second
	generous    = 15
)

// RequireServed ends the clients, and fails the test if one of them waited for very long.
func (s *Steady) RequireServed() {
	s.t.Helper()
	s.stop()
	s.all.Wait()
	s.t.Logf("%d turns, the longest wait %v; the goal is %v, on two cores without other work", s.turns, s.longest.Round(time.Millisecond), longestWait)
	require.Less(s.t, s.longest, generous*longestWait)
}
