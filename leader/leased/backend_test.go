package leased_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func record(t *testing.T, store leased.Store) lease.Record {
	t.Helper()
	r, err := store.Get(t.Context(), name)
	require.NoError(t, err)
	return r
}

func TestAnAcquireWhoseAnswerWasLostIsAdoptedIfItCouldNotBeGivenUp(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	store.set(func(f *faulty) { f.lost, f.most = true, ttl/2 })
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.ErrorIs(t, err, errReset)
	require.ErrorIs(t, a.Release(t.Context(), "a"), errReset)
	store.set(func(f *faulty) { f.lost, f.most = false, 0 })
	lead(t, a, "a")
	r := record(t, store)
	assert.Equal(t, a.Term().Uint64(), r.Token)
	assert.Greater(t, r.Remaining, ttl-time.Minute, "it lasts from now")
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
}

func TestALeaseThatAnAttemptGotEarlierIsProlonged(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	store.set(func(f *faulty) { f.lost, f.most = true, ttl/2 })
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.ErrorIs(t, err, errReset)
	granted := record(t, store)
	store.set(func(f *faulty) { f.lost, f.most = false, 0 })
	lead(t, a, "a")
	r := record(t, store)
	assert.Equal(t, granted.Claim, r.Claim, "no second lease")
	assert.Greater(t, r.Remaining, ttl-time.Minute)
	assert.Equal(t, leader.Term{N: granted.Token}, a.Term())
}

func TestARefusalLeavesNothingToGiveUp(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{&lease.BusyError{Cause: errReset}, lease.ErrNotReady, lease.ErrClosed, &lease.InvalidError{Field: "Holder"}} {
		store := newFaulty()
		a := newBackend(t, store)
		store.set(func(f *faulty) { f.refusal = refusal })
		_, err := a.TryAcquire(t.Context(), "a", ttl)
		require.ErrorIs(t, err, refusal)
		require.NoError(t, a.Release(t.Context(), "a"))
		assert.Equal(t, 1, store.count())
	}
}

func TestARefusalDoesNotSettleWhatAnEarlierRequestDid(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a, b := newBackend(t, store), newBackend(t, store)
	store.set(func(f *faulty) { f.lost = true })
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.ErrorIs(t, err, errReset)
	busy := &lease.BusyError{Cause: errReset}
	store.set(func(f *faulty) { f.lost, f.refusal = false, busy })
	require.ErrorIs(t, a.Release(t.Context(), "a"), lease.ErrBusy)
	store.set(func(f *faulty) { f.refusal = nil })
	refused(t, b, "b")
	release(t, a)
	lead(t, b, "b")
}

func TestAStoreThatGrantsLessIsNotTrusted(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a, b := newBackend(t, store), newBackend(t, store)
	store.set(func(f *faulty) { f.most = ttl / 2 })
	won, err := a.TryAcquire(t.Context(), "a", ttl)
	require.ErrorContains(t, err, "the store grants a lease of 30m0s on scheduler: use a LeaseDuration of no more")
	require.False(t, won)
	release(t, a)
	won, err = b.TryAcquire(t.Context(), "b", ttl/2)
	require.NoError(t, err)
	require.True(t, won, "the control")

	// A renewal is not trusted either, for longer than it is good.
	store.set(func(f *faulty) { f.most = 0 })
	require.NoError(t, b.Renew(t.Context(), "b", ttl))
	takeAway(t, store)
	lead(t, a, "a")
	store.set(func(f *faulty) { f.most = time.Minute })
	err = a.Renew(t.Context(), "a", 2*ttl)
	require.ErrorContains(t, err, "the store grants")
	assert.NotErrorIs(t, err, leader.ErrLost, "the lease that it has is as good as before")
}

func TestATTLThatIsNotWholeMillisecondsIsRoundedUp(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	odd := ttl + 1500*time.Microsecond
	won, err := a.TryAcquire(t.Context(), "a", odd)
	require.NoError(t, err)
	require.True(t, won)
	r := record(t, store)
	assert.Equal(t, ttl+2*time.Millisecond, r.ExpiresAt.Sub(r.AcquiredAt))
}

func TestOnlyWhatIsCertainIsALoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		lost bool
	}{
		{"stale", &lease.StaleError{Name: name, ID: true}, true},
		{"expired", &lease.ExpiredError{Name: name}, true},
		{"unknown", &lease.NotFoundError{Name: name}, true},
		{"busy", &lease.BusyError{Cause: errReset}, false},
		{"not ready", lease.ErrNotReady, false},
		{"unreachable", errReset, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := newFaulty()
			a := newBackend(t, store)
			lead(t, a, "a")
			store.set(func(f *faulty) { f.refusal = c.err })
			err := a.Renew(t.Context(), "a", ttl)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.lost, errors.Is(err, leader.ErrLost))
			store.set(func(f *faulty) { f.refusal = nil })
			assert.Equal(t, c.lost, errors.Is(a.Renew(t.Context(), "a", ttl), leader.ErrLost))
		})
	}
}

func TestARenewalWhoseAnswerWasLostMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	lead(t, a, "a")
	store.set(func(f *faulty) { f.lost = true })
	require.ErrorIs(t, a.Renew(t.Context(), "a", ttl), errReset)
	store.set(func(f *faulty) { f.lost = false })
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
}

func TestAReleaseWhoseAnswerWasLostMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a, b := newBackend(t, store), newBackend(t, store)
	lead(t, a, "a")
	store.set(func(f *faulty) { f.lost = true })
	require.ErrorIs(t, a.Release(t.Context(), "a"), errReset)
	store.set(func(f *faulty) { f.lost = false })
	lead(t, b, "b")
	release(t, a)
	require.NoError(t, b.Renew(t.Context(), "b", ttl))
}

func TestALeadershipIsNeverContinuedByTheNext(t *testing.T) {
	t.Parallel()
	store := newFaulty()
	a := newBackend(t, store)
	lead(t, a, "a")
	first := a.Term()
	lead(t, a, "a") // as after a loss that only the Elector knows of
	assert.True(t, a.Term().Follows(first))
}

// counting grants leases with tokens from a number on.
type counting struct {
	*leasetest.Store
	from uint64
}

func (c counting) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := c.Store.Acquire(ctx, r)
	l.Token += c.from
	return l, err
}

func TestATermIsTheTokenWhateverItsSize(t *testing.T) {
	t.Parallel()
	for _, token := range []uint64{1, driver.MaxN, driver.MaxN + 1, lease.MaxToken} {
		a := newBackend(t, counting{leasetest.NewStore(), token - 1})
		assert.Equal(t, leader.Term{}, a.Term())
		lead(t, a, "a")
		assert.Equal(t, token, a.Term().Uint64())
		parsed, err := driver.ParseTerm(a.Term().String())
		require.NoError(t, err)
		assert.Equal(t, a.Term(), parsed)
	}
}

func TestAnAttemptThatIsCutHalfWayIsGivenUpWhenTheNetworkIsBack(t *testing.T) {
	t.Parallel()
	server, behind := serve(t)
	client, proxy := dial(t, server)
	other, _ := dial(t, server)
	a, b := newBackend(t, client), newBackend(t, other)
	proxy.Set(faultproxy.HoldToClient)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := a.TryAcquire(ctx, "a", ttl)
		failed <- err
	}()
	await.Until(t, 20*time.Second, func() bool {
		_, err := behind.Get(t.Context(), name)
		return err == nil
	}, "the store grants it")
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	refused(t, b, "b")
	proxy.Set(faultproxy.Pass)
	release(t, a)
	lead(t, b, "b")
}

func TestAConfigThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config leased.Config
		field  string
		says   string
	}{
		{leased.Config{}, "Name", "leader: Name is empty: give one"},
		{leased.Config{Name: "a/../b"}, "Name", `use no segments "." and ".."`},
		{leased.Config{Name: strings.Repeat("x", 513)}, "Name", "use at most 512 bytes"},
		{leased.Config{Name: name, PollInterval: -1}, "PollInterval", "PollInterval is -1ns: use 20ms at least"},
		{leased.Config{Name: name, PollInterval: time.Millisecond}, "PollInterval", "or 0 for the default of 250ms"},
	} {
		_, err := leased.New(newFaulty(), c.config)
		var wrong *leader.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, c.field, wrong.Field)
		assert.ErrorContains(t, err, c.says)
	}
	_, err := leased.New(nil, leased.Config{Name: name})
	require.ErrorContains(t, err, "the store is nil")
}
