package leased_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
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
	granted := record(t, store)
	require.ErrorIs(t, a.Release(t.Context(), "a"), errReset)
	store.set(func(f *faulty) { f.lost, f.most = false, 0 })
	lead(t, a, "a")
	r := record(t, store)
	assert.Equal(t, granted.Claim, r.Claim, "no second lease")
	assert.Equal(t, a.Term().Uint64(), r.Token)
	assert.Greater(t, r.Remaining, ttl-time.Minute, "it lasts from now")
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
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

// within bounds a call as an Elector does.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// fail makes an attempt that the store's fault fails, after a second at most.
func fail(t *testing.T, b *leased.Backend, identity string) {
	t.Helper()
	won, err := b.TryAcquire(within(t, time.Second), identity, ttl)
	require.Error(t, err)
	require.False(t, won)
	require.ErrorIs(t, b.Renew(t.Context(), identity, ttl), leader.ErrLost, "an attempt that failed does not lead")
}

func TestAnAcquireWhoseAnswerWasLostIsGivenUpByRelease(t *testing.T) {
	t.Parallel()
	for kind, fault := range map[string]func(f *faulty, on bool){
		"by an error":               func(f *faulty, on bool) { f.lost = on },
		"and nothing shows it":      func(f *faulty, on bool) { f.hang = on },
		"as it were: it comes late": func(f *faulty, on bool) { f.late = map[bool]time.Duration{true: 3 * time.Second}[on] },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFaulty()
				a, b := newBackend(t, store), newBackend(t, store)
				store.set(func(f *faulty) { fault(f, true) })
				fail(t, a, "a")
				store.set(func(f *faulty) { fault(f, false) })
				refused(t, b, "b") // the control: it is held
				require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
				lead(t, b, "b")
			})
		})
	}
}

func TestAnAnswerThatIsLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a, b := newBackend(t, store), newBackend(t, store)
		store.set(func(f *faulty) { f.late = 3 * time.Second })
		fail(t, a, "a")
		store.set(func(f *faulty) { f.late = 0 })
		require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
		assert.Equal(t, 1, store.count(), "nothing was asked twice")
		lead(t, b, "b")
	})
}

func TestALateAnswerIsNoProofOfNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a := newBackend(t, store)
		store.set(func(f *faulty) { f.late = 3 * time.Second })
		fail(t, a, "a")
		store.set(func(f *faulty) { f.late = 0 })
		bubble.Sleep(ttl / 2)
		lead(t, a, "a")
		r := record(t, store)
		assert.Equal(t, ttl, r.Remaining, "it was prolonged")
		assert.Equal(t, uint64(1), r.Token)
	})
}

func TestAReleaseInVainLeavesNothingUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		a, b := newBackend(t, store), newBackend(t, store)
		store.set(func(f *faulty) { f.hang = true })
		fail(t, a, "a")
		began := time.Now()
		require.ErrorIs(t, a.Release(within(t, 10*time.Second), "a"), context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, time.Since(began))
		store.set(func(f *faulty) {
			assert.Zero(t, f.underWay)
			f.hang = false
		})
		require.Equal(t, lease.Held, record(t, store).State)
		require.NoError(t, a.Release(within(t, 10*time.Second), "a"))
		lead(t, b, "b")
	})
}

func TestALeaderThatIsCutOffStopsBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newFaulty()
		way := asSeenBy(shared)
		first, second := newElector(t, way, "first"), newElector(t, shared, "second")
		require.NoError(t, first.Start(t.Context()))
		require.NoError(t, first.WaitForLeadership(t.Context()))
		require.NoError(t, second.Start(t.Context()))
		bubble.Sleep(time.Minute)
		require.True(t, first.IsLeader(), "the control: renewals keep it")
		holder, ok, err := second.Leader(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "first", holder.Identity)

		term := first.Context()
		way.set(func(f *faulty) { f.cut = true })
		<-term.Done()
		end := record(t, shared).ExpiresAt
		assert.GreaterOrEqual(t, time.Until(end), driver.DefaultLeaseDuration/10, "a margin is left")
		assert.ErrorIs(t, context.Cause(term), leader.ErrLost)
		require.NoError(t, second.WaitForLeadership(t.Context()))
		assert.GreaterOrEqual(t, time.Since(end), time.Duration(0))
		assert.Less(t, time.Since(end), time.Second)
		assert.True(t, second.Term().Follows(leader.TermOfContext(term)))

		way.set(func(f *faulty) { f.cut = false })
		bubble.Sleep(time.Minute)
		assert.True(t, second.IsLeader())
		assert.False(t, first.IsLeader())
		require.NoError(t, second.Shutdown(context.Background()))
		require.NoError(t, first.WaitForLeadership(t.Context()))
		require.NoError(t, first.Shutdown(context.Background()))
	})
}

// asSeenBy is a node's own way to the store, with faults of its own.
func asSeenBy(store *faulty) *faulty { return &faulty{Store: store.Store} }

func newElector(t *testing.T, store leased.Store, identity string) *leader.Elector {
	t.Helper()
	return newElectorWith(t, store, identity, leader.Callbacks{})
}

func newElectorWith(t *testing.T, store leased.Store, identity string, callbacks leader.Callbacks) *leader.Elector {
	t.Helper()
	e, err := leader.New(leader.Config{
		Name: name, Backend: newBackend(t, store), Identity: identity, MaxRenewFailures: 3, Callbacks: callbacks,
	})
	require.NoError(t, err)
	return e
}
