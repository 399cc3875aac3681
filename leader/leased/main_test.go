package leased_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const name = "scheduler"

// ttl is long: what ends in a test does not end by it.
const ttl = time.Hour

var (
	_ leased.Store        = lease.Store(nil)
	_ leased.WaitingStore = (*leasehttp.Client)(nil)
)

func newBackend(tb testing.TB, store leased.Store) *leased.Backend {
	tb.Helper()
	b, err := leased.New(store, leased.Config{Name: name})
	require.NoError(tb, err)
	return b
}

// lead makes the backend the leader.
func lead(tb testing.TB, b *leased.Backend, identity string) {
	tb.Helper()
	won, err := b.TryAcquire(tb.Context(), identity, ttl)
	require.NoError(tb, err)
	require.True(tb, won)
}

// refused makes one attempt that somebody else's leadership refuses.
func refused(tb testing.TB, b *leased.Backend, identity string) {
	tb.Helper()
	won, err := b.TryAcquire(tb.Context(), identity, ttl)
	require.NoError(tb, err)
	require.False(tb, won)
}

func release(tb testing.TB, b leader.Backend) {
	tb.Helper()
	require.NoError(tb, b.Release(tb.Context(), ""))
}

// takeAway ends whoever's lease it is, as somebody with the right to do so can.
func takeAway(tb testing.TB, store leased.Store) {
	tb.Helper()
	record, err := store.Get(context.Background(), name)
	require.NoError(tb, err)
	if record.State == lease.Held {
		require.NoError(tb, store.Release(context.Background(), record.Claim))
	}
}

var errReset = errors.New("connection reset by peer")

// A faulty store is one in memory with faults, each for as long as it is set.
type faulty struct {
	*leasetest.Store

	mu       sync.Mutex
	lost     bool          // what is asked is done, and the answer an error
	refusal  error         // nothing is done
	hang     bool          // what is asked is done, and there is no answer
	cut      bool          // nothing gets there, and there is no answer
	late     time.Duration // what is asked is done, and the answer takes so long
	most     time.Duration // that is granted; 0 = no bound
	acquires int           // calls
	underWay int           // of them
}

func newFaulty() *faulty { return &faulty{Store: leasetest.NewStore()} }

// set changes the faults.
func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acquires
}

func (f *faulty) bound(ttl time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 {
		return min(ttl, f.most)
	}
	return ttl
}

// before is the fault that comes before anything is done.
func (f *faulty) before(ctx context.Context) error {
	f.mu.Lock()
	cut, refusal := f.cut, f.refusal
	f.mu.Unlock()
	if cut {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return refusal
}

// after is the fault that takes the answer away.
func (f *faulty) after(ctx context.Context) error {
	f.mu.Lock()
	lost, hang, late := f.lost, f.hang, f.late
	f.mu.Unlock()
	switch {
	case late > 0:
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case hang:
		<-ctx.Done()
		return context.Cause(ctx)
	case lost:
		return errReset
	}
	return nil
}

func (f *faulty) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	f.set(func(f *faulty) { f.acquires++; f.underWay++ })
	defer f.set(func(f *faulty) { f.underWay-- })
	if err := f.before(ctx); err != nil {
		return lease.Lease{}, err
	}
	r.TTL = f.bound(r.TTL)
	l, err := f.Store.Acquire(ctx, r)
	if fault := f.after(ctx); fault != nil {
		return lease.Lease{}, fault
	}
	return l, err
}

func (f *faulty) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if err := f.before(ctx); err != nil {
		return lease.Lease{}, err
	}
	r.TTL = f.bound(r.TTL)
	l, err := f.Store.Renew(ctx, r)
	if fault := f.after(ctx); fault != nil {
		return lease.Lease{}, fault
	}
	return l, err
}

func (f *faulty) Release(ctx context.Context, c lease.Claim) error {
	if err := f.before(ctx); err != nil {
		return err
	}
	err := f.Store.Release(ctx, c)
	if fault := f.after(ctx); fault != nil {
		return fault
	}
	return err
}

func (f *faulty) Get(ctx context.Context, name string) (lease.Record, error) {
	if err := f.before(ctx); err != nil {
		return lease.Record{}, err
	}
	return f.Store.Get(ctx, name)
}
