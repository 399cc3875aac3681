// Package leaseload has clients work with leases while a test kills, cuts off or replaces a server. A history judges the
// answers that they received.
package leaseload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// KeptTTL outlasts every fault, so that a kept lease that is forgotten is noticed.
const KeptTTL = 10 * time.Minute

// A Config sets what clients do.
type Config struct {
	Stores []lease.Store // of one client each
	Prefix string        // of the names, which nobody had before
	TTL    time.Duration // the longest
	// Ready waits until there is a server, or ctx ends. nil = each client finds out by itself.
	Ready func(ctx context.Context)
	// Trace writes all calls, for a replay. nil = nothing is written.
	Trace *trace.Writer
}

// A Load is clients that compete for some names, and keep leases on others.
type Load struct {
	History *leasetest.History

	t       *testing.T
	config  Config
	stop    context.CancelFunc
	clients sync.WaitGroup
	granted atomic.Int64

	mu   sync.Mutex
	kept []kept
}

// kept is a lease that nobody releases, on a name of its own.
type kept struct {
	lease.Claim
	store lease.Store // the client's
}

// Start starts the clients, until Stop or the end of the test.
func Start(t *testing.T, c Config) *Load {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &Load{History: leasetest.NewHistory(), t: t, config: c, stop: stop}
	t.Cleanup(l.Stop)
	for i, store := range c.Stores {
		client := l.History.Client(c.Trace.Store(store))
		l.clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if c.Ready != nil {
					c.Ready(ctx)
				}
				err := l.turn(ctx, client, fmt.Sprintf("client-%d", i), n)
				switch { // do not use up the machine while a name is taken, or no server takes writes
				case errors.Is(err, lease.ErrHeld):
					_ = pause.For(ctx, rand.N(10*time.Millisecond))
				case err != nil:
					_ = pause.For(ctx, time.Millisecond)
				}
			}
		})
	}
	return l
}

// turn works with one of some names, which all clients share. The names change with the number of grants, because calls with
// unknown outcomes make the check of a name slow. Then it keeps a lease on a name that no other client takes.
func (l *Load) turn(ctx context.Context, s lease.Store, holder string, n int) error {
	ttl := l.config.TTL/4 + rand.N(l.config.TTL*3/4)
	r := lease.AcquireRequest{Name: fmt.Sprintf("%s-%d-%d", l.config.Prefix, l.Granted()/60, rand.IntN(3)), Holder: holder, TTL: ttl}
	if rand.IntN(2) == 0 {
		r.IdempotencyKey = fmt.Sprintf("%s-%d", holder, n)
	}
	got, err := s.Acquire(ctx, r)
	if err != nil {
		return err
	}
	l.granted.Add(1)
	for rand.IntN(2) == 0 {
		if _, err := s.Renew(ctx, lease.RenewRequest{Claim: got.Claim, TTL: ttl}); err != nil {
			return err
		}
	}
	if rand.IntN(16) == 0 { // it expires
		if err := pause.For(ctx, got.Remaining+ttl/4); err != nil {
			return err
		}
		if _, err := s.Renew(ctx, lease.RenewRequest{Claim: got.Claim, TTL: ttl}); err != nil {
			return err
		}
	}
	if err := s.Release(ctx, got.Claim); err != nil {
		return err
	}
	own, err := s.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("%s-own-%s-%d", l.config.Prefix, holder, n), Holder: holder, TTL: KeptTTL})
	if err != nil {
		return err
	}
	l.granted.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, kept{own.Claim, s})
	return nil
}

// Granted counts the leases that were granted.
func (l *Load) Granted() int64 { return l.granted.Load() }

// Await waits until so many more leases were granted.
func (l *Load) Await(more int64) {
	l.t.Helper()
	target := l.Granted() + more
	await.Until(l.t, 3*time.Minute, func() bool { return l.Granted() >= target }, "no load")
}

// AwaitOperations waits until the History has recorded so many calls.
func (l *Load) AwaitOperations(n int) {
	l.t.Helper()
	await.Until(l.t, 10*time.Minute, func() bool { return l.History.Counts().Operations >= n }, "no load")
}

// Stop ends the clients, and waits for their last calls.
func (l *Load) Stop() {
	l.stop()
	l.clients.Wait()
}

// Kept returns the leases that were kept.
func (l *Load) Kept() (claims []lease.Claim) {
	for _, k := range l.kept {
		claims = append(claims, k.Claim)
	}
	return claims
}

// RenewKept has the clients renew all leases that they kept, and returns how many are lost. Call it after Stop.
func (l *Load) RenewKept(ctx context.Context) (lost int) {
	for _, k := range l.kept {
		if _, err := k.store.Renew(ctx, lease.RenewRequest{Claim: k.Claim, TTL: KeptTTL}); err != nil {
			lost++
		}
	}
	return lost
}

// RequireLegal stops the clients, and checks all answers that they received.
func (l *Load) RequireLegal(ctx context.Context) {
	l.t.Helper()
	l.Stop()
	require.Zero(l.t, l.RenewKept(ctx), "of %d leases that were kept", len(l.kept))
	counts := l.History.Counts()
	l.t.Logf("%+v", counts)
	tallyCounts(l.t, counts)
	require.NoError(l.t, l.History.Check(soak.Size(l.t, 2*time.Minute, 20*time.Minute)))
	require.Positive(l.t, counts.Granted)
	require.GreaterOrEqual(l.t, counts.Refused, counts.Granted/20, "the clients hardly compete")
	require.Positive(l.t, counts.Ended, "no lease expired under its holder")
}

func tallyCounts(t *testing.T, c leasetest.Counts) {
	t.Helper()
	tally.Count(t, "operations", c.Operations)
	tally.Count(t, "leases granted", c.Granted)
	tally.Count(t, "refused", c.Refused)
	tally.Count(t, "ended under their holders", c.Ended)
	tally.Count(t, "unknown outcomes", c.Unknown)
}

// A Remote is a lock server's client as a Store. The server sweeps by itself.
type Remote struct {
	*leasehttp.Client

	Wait time.Duration // of each acquire, in the queue of the server

	// Releaser sends releases, and may resend them. nil = Client does. If a resent release is stale, its
	// outcome is unknown: the store keeps the last release of a name only. An acquire must not be
	// resent: if its first lease expires before that, the history does not know of the lease.
	Releaser *leasehttp.Client
}

// Release implements lease.Store.
func (r Remote) Release(ctx context.Context, c lease.Claim) error {
	if r.Releaser == nil {
		return r.Client.Release(ctx, c)
	}
	err := r.Releaser.Release(ctx, c)
	if errors.Is(err, lease.ErrStale) {
		return fmt.Errorf("unknown, it may have been resent: %v", err) //nolint:errorlint // ErrStale says that nothing was done
	}
	return err
}

// Acquire implements lease.Store.
func (r Remote) Acquire(ctx context.Context, request lease.AcquireRequest) (lease.Lease, error) {
	return r.AcquireWait(ctx, request, r.Wait)
}

// Sweep implements lease.Store.
func (Remote) Sweep(context.Context, lease.SweepRequest) (lease.SweepResult, error) {
	return lease.SweepResult{}, errors.ErrUnsupported
}
