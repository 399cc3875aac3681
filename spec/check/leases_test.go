package check_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/spec/check"
)

var errLost = errors.New("connection reset")

// A lossy store loses each fifth answer. If broken, it also acknowledges some releases that it does not carry out.
type lossy struct {
	lease.Store
	calls  atomic.Int64
	broken bool
}

func (l *lossy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	got, err := l.Store.Acquire(ctx, r)
	if l.calls.Add(1)%5 == 0 {
		return lease.Lease{}, errLost
	}
	return got, err
}

func (l *lossy) Release(ctx context.Context, c lease.Claim) error {
	if l.broken && l.calls.Add(1)%2 == 0 {
		return nil
	}
	return l.Store.Release(ctx, c)
}

// contend returns the run of clients that compete for leases in a store.
func contend(t *testing.T, s lease.Store) []trace.Event {
	t.Helper()
	dir := t.TempDir()
	w, err := trace.Open(dir, "clients")
	require.NoError(t, err)
	leasetest.Contention{Clients: 6, Names: 2, Operations: 60}.Run(t.Context(), func(int) lease.Store { return w.Store(s) })
	require.NoError(t, w.Close())
	run, err := trace.Read(dir)
	require.NoError(t, err)
	require.NotEmpty(t, run, filepath.Base(dir))
	return run
}

func TestTheRulesOfLeasesAcceptAStoreThatUsesThem(t *testing.T) {
	t.Parallel()
	require.NoError(t, check.Leases(contend(t, leasetest.NewStore())))
	require.NoError(t, check.Leases(contend(t, &lossy{Store: leasetest.NewStore()})))
}

// The control.
func TestTheRulesOfLeasesRefuseAStoreThatForgetsReleases(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, check.Leases(contend(t, &lossy{Store: leasetest.NewStore(), broken: true})), check.ErrRefused)
}

// A server that dies leaves all calls that it had with an unknown outcome. Their orders are too many to try each.
func TestManyCallsOfUnknownOutcomeAreChecked(t *testing.T) {
	t.Parallel()
	var run []trace.Event
	add := func(asked, answered time.Duration, who string, c trace.Call) {
		run = append(run, trace.Event{Kind: trace.LeaseAcquire, Key: "job", Who: who, Asked: int64(asked), Boot: int64(answered), Lease: &c})
	}
	for i := range 9 {
		add(0, time.Second, fmt.Sprint("client-", i), trace.Call{TTL: time.Second, Answer: trace.Unknown})
	}
	add(2*time.Second, 3*time.Second, "last", trace.Call{TTL: time.Second, Answer: trace.Held, Holder: "client-7"})
	require.NoError(t, check.Leases(run))
	add(4*time.Second, 5*time.Second, "last", trace.Call{TTL: time.Second, Answer: trace.Held, Holder: "nobody"})
	require.ErrorIs(t, check.Leases(run), check.ErrRefused)
}
