package leaseserver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// shareWaits sends a request for a share that is the nth to wait at a server. A request that goes from one line to the
// next is in none for a moment, so nobody can count those who waited before.
func shareWaits(ctx context.Context, t *testing.T, at servetest.Peer, nth int, r shared.Request, wait time.Duration) <-chan shared.Share {
	t.Helper()
	got := make(chan shared.Share, 1)
	go func() {
		defer close(got)
		if s, err := at.Client.AcquireShare(ctx, r, wait); err == nil {
			got <- s
		}
	}()
	servetest.AwaitWaiters(t, at.Server, nth)
	return got
}

// The first sending gets the share, and its answer is lost. Others stand at the gate until the
// end of the test, and the second sending behind them; a third comes later and does not wait.
func TestASendingGetsTheShareThatAnEarlierOneGotThoughOthersStandBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holders, request, others shared.Request
		count                    int
	}{
		"one slot":               {slot("holder", 1), slot("a", 1), slot("b", 1), 1},
		"two slots":              {slot("holder", 2), slot("a", 2), slot("b", 2), 2},
		"shared behind a writer": {whole("holder"), slot("a", 0), whole("b"), 1},
		"before a writer":        {whole("holder"), slot("a", 2), whole("b"), 1},
		"the whole":              {slot("holder", 1), whole("a"), whole("b"), 1},
	} {
		for where := range 2 {
			t.Run(fmt.Sprintf("%s, second sending to server %d", name, where), func(t *testing.T) {
				t.Parallel()
				store := leasetest.NewStore()
				peers := []servetest.Peer{servetest.NewPeer(t, store, 20*time.Millisecond), servetest.NewPeer(t, store, 20*time.Millisecond)}
				again := peers[where]
				var held []shared.Share
				for i := range c.count {
					r := c.holders
					r.Holder += fmt.Sprint(i)
					s, err := peers[0].Client.AcquireShare(t.Context(), r, 0)
					require.NoError(t, err)
					held = append(held, s)
				}
				request := c.request
				request.IdempotencyKey = "k"
				ctx, hangUp := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				first := shareWaits(ctx, t, peers[0], 1, request, time.Minute)
				for i := range 2 {
					other := shareWaits(ctx, t, peers[0], i+2, c.others, time.Minute)
					wg.Go(func() { <-other })
				}
				nth := 4
				if where == 1 {
					nth = 1
				}
				second := shareWaits(ctx, t, again, nth, request, servetest.Bound)
				require.NoError(t, peers[0].Client.Release(t.Context(), held[0].Claim))
				want, ok := <-first
				require.True(t, ok)
				got, ok := <-second
				require.True(t, ok, "it has the share, and is refused")
				assert.Equal(t, want.Claim, got.Claim)
				assert.Equal(t, want.Fence, got.Fence)
				assert.Equal(t, want.Metadata, got.Metadata)
				for _, p := range peers {
					late, err := p.Client.AcquireShare(t.Context(), request, 0)
					require.NoError(t, err)
					assert.Equal(t, want.Claim, late.Claim)
					assert.Equal(t, want.Fence, late.Fence)
				}
				// Another request of the holder, and who has no key, is refused.
				for _, key := range []string{"another", ""} {
					request.IdempotencyKey = key
					_, err := again.Client.AcquireShare(t.Context(), request, 0)
					require.Error(t, err, "key %q", key)
				}
				hangUp()
				wg.Wait()
			})
		}
	}
}
