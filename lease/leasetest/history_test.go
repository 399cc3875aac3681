package leasetest_test

import (
	"context"
	"encoding/json"
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

// story has two leases of a lock, one after the other, as clients of other processes tell of them.
func story() []leasetest.Operation {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return []leasetest.Operation{
		{Verb: "acquire", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Key: "k", Began: 1e6, Ended: 2e6, Outcome: "ok", AcquiredAt: at, ExpiresAt: at.Add(time.Second), RemainingMS: 1000, TrustedUntil: 900e6},
		{Verb: "acquire", Lock: "x", Owner: "b", Began: 3e6, Ended: 4e6, Outcome: "lock-held", HeldBy: "a"},
		{Verb: "renew", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Began: 5e6, Ended: 6e6, Outcome: "ok", AcquiredAt: at, ExpiresAt: at.Add(1004 * time.Millisecond), RemainingMS: 1000, TrustedUntil: 904e6},
		{Verb: "release", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Began: 7e6, Outcome: "ok"},
		{Verb: "acquire", Lock: "x", Owner: "b", LeaseID: "2", Token: 2, Began: 9e6, Ended: 10e6, Outcome: "ok", AcquiredAt: at.Add(8 * time.Millisecond), ExpiresAt: at.Add(2 * time.Second), RemainingMS: 1992, TrustedUntil: 1800e6},
	}
}

func check(t *testing.T, all []leasetest.Operation) error {
	t.Helper()
	h := leasetest.NewHistory()
	for _, o := range all {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		var read leasetest.Operation
		require.NoError(t, json.Unmarshal(text, &read))
		require.NoError(t, h.Add(read))
	}
	return h.Check(checkLimit)
}

func TestOperationsOfOtherProcessesAreChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, story()))
	for name, spoil := range map[string]func(all []leasetest.Operation){
		"two trust at once":         func(all []leasetest.Operation) { all[3].Verb, all[3].Outcome, all[3].Ended = "renew", "ok", 0 },
		"a token repeats":           func(all []leasetest.Operation) { all[4].Token = 1 },
		"lost while it was trusted": func(all []leasetest.Operation) { all[2].Outcome = "lease-stale" },
		"refused by nobody's lease": func(all []leasetest.Operation) { all[1].HeldBy = "c" },
		"renewed with another's id": func(all []leasetest.Operation) { all[2].LeaseID = "2" },
		"granted while it is held":  func(all []leasetest.Operation) { all[1].Outcome, all[1].LeaseID, all[1].Token = "ok", "3", 2 },
		"sent again, and two granted": func(all []leasetest.Operation) {
			all[1].Owner, all[1].Key, all[1].Outcome, all[1].LeaseID, all[1].Token = "a", "l", "ok", "3", 2
		},
	} {
		all := story()
		spoil(all)
		require.ErrorIs(t, check(t, all), leasetest.ErrIllegal, name)
	}
}

func TestAnAcquireThatWasSentTwiceMayBeGrantedAgainLater(t *testing.T) {
	t.Parallel()
	all := story()
	all[0].Sendings = 2
	all[4] = leasetest.Operation{Verb: "acquire", Lock: "x", Owner: "b", Began: 9e6, Ended: 10e6, Outcome: "lock-held", HeldBy: "a"}
	all[3].Ended = 8e6
	require.NoError(t, check(t, all), "the sending that was not answered was granted after the release")
	all[0].Sendings = 1
	require.ErrorIs(t, check(t, all), leasetest.ErrIllegal)
}

func TestAReleaseWhoseFirstAnswerWasLostMayBeCalledStale(t *testing.T) {
	t.Parallel()
	all := story()
	all[3].Outcome, all[3].Ended = "lease-stale", 11e6
	require.ErrorIs(t, check(t, all), leasetest.ErrIllegal)
	all[3].Sendings = 2
	require.NoError(t, check(t, all))
}

func TestARenewalThatMeetsTheReleaseOfItsLeaseIsNoLoss(t *testing.T) {
	t.Parallel()
	all := story()
	all[2].Outcome, all[2].Ended, all[3].Ended = "lease-stale", 8e6, 8e6
	require.NoError(t, check(t, all))
}

func TestAnOperationThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []leasetest.Operation{{}, {Verb: "steal", Lock: "x", Began: 1}, {Verb: "renew", Began: 1}, {Verb: "renew", Lock: "x"}, {Verb: "renew", Lock: "x", Began: 2, Ended: 1}} {
		assert.Error(t, leasetest.NewHistory().Add(o))
	}
}
