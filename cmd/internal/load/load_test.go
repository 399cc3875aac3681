package load_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/load"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A store is the part of a lease store that the tests break.
type store interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
}

type locks struct{ store }

func (s locks) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, time.Time, error) {
	sent := lease.Now()
	l, err := s.store.Acquire(ctx, r)
	return l, lease.Trust(sent, l, 0).Time(), err
}

// config uses most leases in ways in which something can go wrong.
func config(store store) load.Config {
	return load.Config{Locks: locks{store}, Clients: 16, Names: 4, TTL: 100 * time.Millisecond, Heartbeat: 0.05, Expire: 0.1}
}

func run(t *testing.T, c load.Config, d time.Duration) load.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return load.New(c).Run(ctx)
}

// runUntil repeats a run until all of these have happened in one run. No run may report a violation. A busy machine may not
// get as far in its time.
func runUntil(t *testing.T, c load.Config, d time.Duration, happened func(load.Counts) []int) (r load.Report) {
	t.Helper()
	for range 10 {
		r = run(t, c, d)
		require.Empty(t, r.Violations)
		if !slices.Contains(happened(r.Counts), 0) && !slices.ContainsFunc(r.Operations, func(o load.Measured) bool { return o.Count == 0 }) {
			break
		}
	}
	return r
}

func TestAStoreThatKeepsItsPromisesIsNotAccused(t *testing.T) {
	t.Parallel()
	r := runUntil(t, config(leasetest.NewStore()), 2*time.Second, func(c load.Counts) []int {
		return []int{c.Expired, c.Writes, c.StaleWrites, c.StaleRenewals, c.StaleReleases}
	})
	require.NoError(t, r.Err)
	for _, o := range r.Operations {
		assert.Positive(t, o.Count, o.Operation)
		assert.LessOrEqual(t, o.P50, o.P99)
		assert.LessOrEqual(t, o.P99, o.Longest)
	}
	c := r.Counts
	for what, n := range map[string]int{
		"expiries": c.Expired, "writes": c.Writes, "stale writes": c.StaleWrites, "stale renewals": c.StaleRenewals, "stale releases": c.StaleReleases,
	} {
		assert.Positive(t, n, what)
	}
	assert.Zero(t, c.Failed)
}

func TestAnswersThatClientsReadLateAreNoViolations(t *testing.T) {
	t.Parallel()
	c := config(leasetest.NewStore())
	c.Locks = sleepy{c.Locks}
	r := runUntil(t, c, 4*time.Second, func(c load.Counts) []int { return []int{c.StaleWrites} })
	assert.Positive(t, r.Counts.StaleWrites)
}

// sleepy delays some answers until long after the lease has expired.
type sleepy struct{ load.Locks }

func (s sleepy) sleep() {
	if time.Now().UnixNano()/1000%8 == 0 {
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // the delay is the fault
	}
}

func (s sleepy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, time.Time, error) {
	defer s.sleep()
	return s.Locks.Acquire(ctx, r)
}

func (s sleepy) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	defer s.sleep()
	return s.Locks.Renew(ctx, r)
}

func (s sleepy) Release(ctx context.Context, c lease.Claim) error {
	defer s.sleep()
	return s.Locks.Release(ctx, c)
}

func TestEveryBrokenPromiseIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		locks      func(*leasetest.Store) store
		invariants []string
	}{
		"tokens repeat":            {func(s *leasetest.Store) store { return &halfTokens{s} }, []string{"token", "fence", "release"}},
		"two holders":              {func(s *leasetest.Store) store { return twoStores{s, leasetest.NewStore()} }, []string{"exclusive", "token", "release", "fence"}},
		"anybody can release":      {func(s *leasetest.Store) store { return anybody{s} }, []string{"release", "exclusive", "lost"}},
		"expired leases renewed":   {func(s *leasetest.Store) store { return undead{s} }, []string{"expired"}},
		"leases end early":         {func(s *leasetest.Store) store { return hasty{s} }, []string{"lost", "exclusive"}},
		"releases are not granted": {func(s *leasetest.Store) store { return clinging{s} }, []string{"lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, config(c.locks(leasetest.NewStore())), 20*time.Second)
			require.NotEmpty(t, r.Violations)
			assert.Contains(t, c.invariants, r.Violations[0].Invariant, r.Violations[0].String())
		})
	}
}

func TestAResourceWithoutFencingIsNoticed(t *testing.T) {
	t.Parallel()
	c := config(leasetest.NewStore())
	c.Unfenced = true
	r := run(t, c, 20*time.Second)
	require.NotEmpty(t, r.Violations)
	assert.Equal(t, "fence", r.Violations[0].Invariant)
	assert.Less(t, r.Elapsed, 20_000.0, "the first ends the run")
}

func TestErrorsAreNoViolations(t *testing.T) {
	t.Parallel()
	r := runUntil(t, config(lossy{leasetest.NewStore()}), 2*time.Second, func(c load.Counts) []int { return []int{c.Failed, c.Busy} })
	assert.Positive(t, r.Counts.Failed)
	assert.Positive(t, r.Counts.Busy)
	assert.Error(t, r.Err)
}

// halfTokens grants every token twice.
type halfTokens struct{ *leasetest.Store }

func (s *halfTokens) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, r)
	if err == nil {
		l.ID = fmt.Sprintf("%s/%d", l.ID, l.Token)
		l.Token = (l.Token + 1) / 2
	}
	return l, err
}

// real returns the claim that the store knows.
func (s *halfTokens) real(c lease.Claim) lease.Claim {
	id, shown := c.ID, c.Token
	if _, err := fmt.Sscanf(id[26:], "/%d", &c.Token); err == nil && (c.Token+1)/2 == shown {
		c.ID = id[:26]
	}
	return c
}

func (s *halfTokens) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	r.Claim = s.real(r.Claim)
	return s.Store.Renew(ctx, r)
}

func (s *halfTokens) Release(ctx context.Context, c lease.Claim) error {
	return s.Store.Release(ctx, s.real(c))
}

// twoStores asks a second store when the first one refuses.
type twoStores struct{ a, b *leasetest.Store }

func (s twoStores) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := s.a.Acquire(ctx, r)
	if errors.Is(err, lease.ErrHeld) {
		return s.b.Acquire(ctx, r)
	}
	return l, err
}

func (s twoStores) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, err := s.a.Renew(ctx, r)
	if errors.Is(err, lease.ErrStale) {
		return s.b.Renew(ctx, r)
	}
	return l, err
}

func (s twoStores) Release(ctx context.Context, c lease.Claim) error {
	err := s.a.Release(ctx, c)
	if errors.Is(err, lease.ErrStale) {
		return s.b.Release(ctx, c)
	}
	return err
}

// anybody allows a release with any claim.
type anybody struct{ *leasetest.Store }

func (s anybody) Release(ctx context.Context, c lease.Claim) error {
	r, err := s.Get(ctx, c.Name)
	if err != nil {
		return err
	}
	return s.Store.Release(ctx, r.Claim)
}

// undead renews expired leases.
type undead struct{ *leasetest.Store }

func (s undead) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, err := s.Store.Renew(ctx, r)
	if errors.Is(err, lease.ErrExpired) {
		return lease.Lease{Claim: r.Claim}, nil
	}
	return l, err
}

// hasty keeps leases for half the time that it reports.
type hasty struct{ *leasetest.Store }

func (s hasty) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	r.TTL /= 2
	l, err := s.Store.Acquire(ctx, r)
	l.Remaining *= 2
	return l, err
}

func (s hasty) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	r.TTL /= 2
	l, err := s.Store.Renew(ctx, r)
	l.Remaining *= 2
	return l, err
}

// clinging refuses releases.
type clinging struct{ *leasetest.Store }

func (s clinging) Release(_ context.Context, c lease.Claim) error {
	return &lease.StaleError{Name: c.Name, Token: true}
}

// lossy loses the answer of every tenth operation, and reports that it is busy at some others.
type lossy struct{ *leasetest.Store }

var errLost = errors.New("connection reset")

func (s lossy) mishap() error {
	switch time.Now().UnixNano() / 1000 % 10 {
	case 0:
		return errLost
	case 1:
		return &lease.BusyError{Retry: time.Millisecond, Cause: errLost}
	}
	return nil
}

func (s lossy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	err := s.mishap()
	if errors.Is(err, lease.ErrBusy) {
		return lease.Lease{}, err
	}
	l, acquireErr := s.Store.Acquire(ctx, r)
	return l, errors.Join(acquireErr, err)
}

func (s lossy) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	err := s.mishap()
	if errors.Is(err, lease.ErrBusy) {
		return lease.Lease{}, err
	}
	l, renewErr := s.Store.Renew(ctx, r)
	if renewErr != nil {
		return l, renewErr
	}
	return l, err
}

func (s lossy) Release(ctx context.Context, c lease.Claim) error {
	err := s.mishap()
	if errors.Is(err, lease.ErrBusy) {
		return err
	}
	if releaseErr := s.Store.Release(ctx, c); releaseErr != nil {
		return releaseErr
	}
	return err
}

func (s twoStores) Get(ctx context.Context, name string) (lease.Record, error) {
	return s.a.Get(ctx, name)
}

// A store may keep a lease for longer than requested, and than it reports, as etcd does.
func TestAStoreThatGivesMoreTimeIsNotAccused(t *testing.T) {
	t.Parallel()
	r := runUntil(t, config(generous{leasetest.NewStore()}), 3*time.Second, func(c load.Counts) []int { return []int{c.StaleRenewals} })
	assert.Positive(t, r.Counts.StaleRenewals)
}

// generous keeps leases for longer than it reports, and reports more than requested.
type generous struct{ *leasetest.Store }

func (s generous) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	r.TTL *= 3
	l, err := s.Store.Acquire(ctx, r)
	l.Remaining /= 2
	return l, err
}

func (s generous) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	r.TTL *= 3
	l, err := s.Store.Renew(ctx, r)
	l.Remaining /= 2
	return l, err
}
