package leased_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

var errReset = errors.New("connection reset by peer")

// A faulty store is one in memory that counts what it is asked, with faults.
type faulty struct {
	*leasetest.Store

	mu     sync.Mutex
	calls  map[string]int                          // by operation; of RenewAll also the renewals
	before func(operation, shard string) error     // nothing is done
	after  func(operation, shard string) error     // it is done, and the answer lost
	most   time.Duration                           // that is granted; 0 = no bound
	each   func(r lease.RenewRequest) (busy error) // of a RenewAll
}

func newFaulty() *faulty { return &faulty{Store: leasetest.NewStore(), calls: map[string]int{}} }

// set changes the faults.
func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// counted returns what was asked since it was called last.
func (f *faulty) counted() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = map[string]int{}
	return calls
}

// do does an operation on a lease. Faults get the name of its shard.
func (f *faulty) do(operation, name string, do func() error) error {
	_, shard, _ := strings.Cut(name, "/shard/")
	f.mu.Lock()
	f.calls[operation]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(operation, shard); err != nil {
			return err
		}
	}
	if err := do(); err != nil || after == nil {
		return err
	}
	return after(operation, shard)
}

func (f *faulty) Acquire(ctx context.Context, r lease.AcquireRequest) (l lease.Lease, err error) {
	f.mu.Lock()
	if f.most > 0 {
		r.TTL = min(r.TTL, f.most)
	}
	f.mu.Unlock()
	err = f.do("acquire", r.Name, func() error { l, err = f.Store.Acquire(ctx, r); return err })
	return l, err
}

func (f *faulty) Renew(ctx context.Context, r lease.RenewRequest) (l lease.Lease, err error) {
	err = f.do("renew", r.Name, func() error { l, err = f.Store.Renew(ctx, r); return err })
	return l, err
}

func (f *faulty) RenewAll(ctx context.Context, all []lease.RenewRequest) (results []lease.RenewResult, err error) {
	f.mu.Lock()
	f.calls["renewals"] += len(all)
	each := f.each
	f.mu.Unlock()
	err = f.do("renew all", "", func() error { results, err = f.Store.RenewAll(ctx, all); return err })
	for i := range results {
		if each != nil {
			if busy := each(all[i]); busy != nil {
				results[i] = lease.RenewResult{Err: busy}
			}
		}
	}
	return results, err
}

func (f *faulty) Release(ctx context.Context, c lease.Claim) error {
	return f.do("release", c.Name, func() error { return f.Store.Release(ctx, c) })
}

func (f *faulty) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if err := f.do("list "+strings.TrimPrefix(r.Prefix, group), "", func() error { return nil }); err != nil {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, err) }
	}
	return f.Store.List(ctx, r)
}

// takeAway ends the leases of a holder with this prefix, as somebody with the right to do so can.
func (f *faulty) takeAway(tb testing.TB, prefix, holder string) {
	tb.Helper()
	taken := 0
	for r, err := range f.Store.List(tb.Context(), lease.ListRequest{Prefix: group + "/" + prefix}) {
		require.NoError(tb, err)
		if r.Holder == holder && r.State == lease.Held {
			taken++
			require.NoError(tb, f.Store.Release(tb.Context(), r.Claim))
		}
	}
	require.Equal(tb, 1, taken)
}

// busy is a store's refusal.
func busy() error { return &lease.BusyError{Retry: 100 * time.Millisecond, Cause: errors.New("429")} }

const ttl = 15 * time.Second

func self(identity string) driver.Member {
	return driver.Member{Identity: identity, Weight: 100, List: 7}
}

func open(tb testing.TB, f *faulty, identity string) driver.Session {
	tb.Helper()
	s, err := newBackend(tb, f).Open(tb.Context(), self(identity), ttl)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// claim returns the terms of what it got.
func claim(tb testing.TB, s driver.Session, names ...string) map[string]driver.Term {
	tb.Helper()
	grants, err := s.Claim(tb.Context(), names)
	require.NoError(tb, err)
	terms := map[string]driver.Term{}
	for _, g := range grants {
		terms[g.Name] = g.Term
	}
	return terms
}

func renew(tb testing.TB, s driver.Session) (lost []string) {
	tb.Helper()
	lost, err := s.Renew(tb.Context(), ttl)
	require.NoError(tb, err)
	return lost
}

func look(tb testing.TB, s driver.Session, known uint64) driver.View {
	tb.Helper()
	v, err := s.Look(tb.Context(), known)
	require.NoError(tb, err)
	return v
}
