package leasetest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

const checkLimit = 60 * time.Second

var errLost = errors.New("connection reset")

// A lossy store does its work and then loses some of its answers, or never hears.
type lossy struct {
	lease.Store
	calls atomic.Int64
}

func (l *lossy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	n := l.calls.Add(1)
	if n%100 == 0 {
		return lease.Lease{}, errLost
	}
	got, err := l.Store.Acquire(ctx, r)
	if n%5 == 0 && err == nil {
		return lease.Lease{}, errLost
	}
	return got, err
}

func (l *lossy) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	got, err := l.Store.Renew(ctx, r)
	if l.calls.Add(1)%9 == 0 {
		return lease.Lease{}, errLost
	}
	return got, err
}

func (l *lossy) Release(ctx context.Context, c lease.Claim) error {
	err := l.Store.Release(ctx, c)
	if l.calls.Add(1)%9 == 0 {
		return errLost
	}
	return err
}

func TestLostAnswersAreLegal(t *testing.T) {
	t.Parallel()
	store, h := &lossy{Store: leasetest.NewStore()}, leasetest.NewHistory()
	leasetest.Contention{Clients: 10, Sweep: true}.Run(t.Context(), func(int) lease.Store { return h.Client(store) })
	require.NoError(t, h.Check(checkLimit))
	assert.Positive(t, h.Counts().Unknown)
	t.Logf("%+v", h.Counts())
}

// A forger is right but for what its kind changes.
type forger struct {
	lease.Store
	kind string

	mu    sync.Mutex
	calls int
	last  map[string]lease.Lease
}

// due is true now and then.
func (f *forger) due(kind string) bool {
	if f.kind != kind {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.calls%4 == 0
}

func (f *forger) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := f.Store.Acquire(ctx, r)
	f.mu.Lock()
	last := f.last[r.Name]
	if err == nil {
		f.last[r.Name] = l
	}
	f.mu.Unlock()
	switch {
	case err != nil && f.due("two holders"):
		l, err = last, nil
		l.Holder, l.ID, l.Token, l.Remaining = r.Holder, "forged", l.Token+1, r.TTL
	case err == nil && f.due("a token repeats"):
		l.Token = max(last.Token, 1)
	case err == nil && f.due("acknowledged before its commit"):
		_ = f.Store.Release(ctx, l.Claim)
	}
	return l, err
}

func (f *forger) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, err := f.Store.Renew(ctx, r)
	if errors.Is(err, lease.ErrExpired) && f.kind == "an expired lease is renewed" {
		now := time.Now()
		return lease.Lease{Claim: r.Claim, ExpiresAt: now.Add(r.TTL), Remaining: r.TTL}, nil
	}
	return l, err
}

func (f *forger) Release(ctx context.Context, c lease.Claim) error {
	err := f.Store.Release(ctx, c)
	if f.due("a release is forgotten") {
		return &lease.StaleError{Name: c.Name, ID: true}
	}
	if errors.Is(err, lease.ErrStale) && f.kind == "a stale release is good" {
		return nil
	}
	return err
}

// The controls: what a History is worth.
func TestHistoriesOfBrokenStoresAreIllegal(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{
		"two holders", "a token repeats", "an expired lease is renewed", "a stale release is good",
		"a release is forgotten", "acknowledged before its commit",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for range 20 { // what is broken has to meet its chance
				store := &forger{Store: leasetest.NewStore(), kind: kind, last: map[string]lease.Lease{}}
				h := leasetest.NewHistory()
				leasetest.Contention{Clients: 4, Names: 1, Operations: 30}.Run(t.Context(), func(int) lease.Store { return h.Client(store) })
				if err := h.Check(checkLimit); err != nil {
					require.ErrorIs(t, err, leasetest.ErrIllegal)
					return
				}
			}
			require.Fail(t, "all histories were legal")
		})
	}
}
