//go:build integration

package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// clients is how many work at once.
const clients = 6

// longTTL outlives a fail-over, so that what is forgotten of such a lease is noticed.
const longTTL = 10 * time.Minute

// A load is clients that acquire, renew and release, and keep what they were
// acknowledged.
type load struct {
	t       *testing.T
	history *leasetest.History
	stop    context.CancelFunc
	wg      sync.WaitGroup

	granted atomic.Int64
	last    atomic.Int64 // when the last lease was granted, in nanoseconds since start
	start   time.Time

	mu   sync.Mutex
	kept []kept
}

// kept is a lease that nobody releases, on a name of its own.
type kept struct {
	lease.Claim
	store lease.Store // the client's
}

// startLoad has each store worked with by a client, until the end.
func startLoad(t *testing.T, stores ...lease.Store) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &load{t: t, history: leasetest.NewHistory(), stop: stop, start: time.Now()}
	t.Cleanup(l.end)
	for i, store := range stores {
		client := l.history.Client(store)
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = l.turn(ctx, client, fmt.Sprintf("client-%d", i), n) // the history has what came of it
			}
		})
	}
	return l
}

// turn works on one of some names, others all the time because calls with unknown outcomes
// make the check of a name slow, and then keeps a lease on a name that no other client takes.
func (l *load) turn(ctx context.Context, s lease.Store, holder string, n int) error {
	shared := lease.AcquireRequest{Name: fmt.Sprintf("shared-%d-%d", n/20, rand.IntN(3)), Holder: holder, TTL: 200 * time.Millisecond, IdempotencyKey: fmt.Sprintf("%s/%d", holder, n)}
	got, err := s.Acquire(ctx, shared)
	if err != nil {
		<-time.After(time.Millisecond) // while no server takes writes, do not use up the machine
		return err
	}
	l.note()
	if _, err := s.Renew(ctx, lease.RenewRequest{Claim: got.Claim, TTL: shared.TTL}); err != nil {
		return err
	}
	if err := s.Release(ctx, got.Claim); err != nil {
		return err
	}
	own, err := s.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("own-%s-%d", holder, n), Holder: holder, TTL: longTTL})
	if err != nil {
		return err
	}
	l.note()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, kept{own.Claim, s})
	return nil
}

func (l *load) note() {
	l.granted.Add(1)
	l.last.Store(int64(time.Since(l.start)))
}

// await waits until so many more leases were granted.
func (l *load) await(more int64) {
	l.t.Helper()
	target := l.granted.Load() + more
	require.Eventually(l.t, func() bool { return l.granted.Load() >= target }, patience, time.Millisecond, "no load")
}

// end ends the clients, and waits for their last calls.
func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

// renewKept has the clients renew all leases that they kept: the history notes which are
// lost.
func (l *load) renewKept(ctx context.Context) (lost int) {
	for _, k := range l.kept {
		if _, err := k.store.Renew(ctx, lease.RenewRequest{Claim: k.Claim, TTL: longTTL}); err != nil {
			lost++
		}
	}
	return lost
}
