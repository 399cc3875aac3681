package leasetest

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// A Harness configures the test of a lease.Store implementation.
type Harness struct {
	// New makes an empty store, and closes it with t.Cleanup. Required.
	New func(t *testing.T) lease.Store

	// Reopen ends store as abruptly as it can without losing acknowledged data, and returns a store
	// on the same data. nil = not durable.
	Reopen func(t *testing.T, store lease.Store) lease.Store

	// Another opens one more store on the data of store, and closes it with t.Cleanup. It is
	// used to test messages between stores on the same data. nil = these tests use one store.
	Another func(t *testing.T, store lease.Store) lease.Store

	// TTL is the TTL of leases that the suite lets expire. It should be several times longer than a
	// call can take on a busy machine. 0 = 200 ms.
	TTL time.Duration

	// Precision is how exact the store's answers are. A protocol that counts in milliseconds is
	// less exact. 0 = a microsecond.
	Precision time.Duration

	// Race configures the clients of the test that checks a history; it always sweeps. For a store
	// with slow calls, use fewer Operations.
	Race Contention
}

// Run runs the conformance suite as parallel subtests of t. It checks the contract
// of lease.Store, and of lease.BatchRenewer, lease.HandOverer, lease.KeyedReleaser and
// lease.Messenger if the stores implement them.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "leasetest: Harness.New")
	h.TTL = cmp.Or(h.TTL, 200*time.Millisecond)
	h.Precision = cmp.Or(h.Precision, time.Microsecond)
	for _, c := range slices.Concat(acquireCases, delayCases, renewCases, metadataCases, adoptCases, releaseCases, resendCases, handOverCases, messageCases, lookCases, sweepCases, invalidCases, tokenCases, raceCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&suite{T: t, h: h, store: h.New(t)})
		})
	}
}

// A testCase is one property.
type testCase struct {
	name string
	run  func(s *suite)
}

// A suite runs one test case on one store.
type suite struct {
	*testing.T
	h     Harness
	store lease.Store
}

// capability returns a store as T, or skips the case if it is none.
func capability[T any](s *suite, store lease.Store) T {
	s.Helper()
	able, ok := store.(T)
	if !ok {
		s.Skipf("%T is no %v", store, reflect.TypeFor[T]())
	}
	return able
}

// long is a TTL that does not end while the suite runs.
const long = time.Hour

// bound is the maximum duration of anything that should come soon.
func (s *suite) bound() time.Duration { return 20*s.h.TTL + 10*time.Second }

// request returns a request for a lease that lasts.
func request(name, holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: holder, TTL: long}
}

// brief returns a request for a lease that expires soon.
func (s *suite) brief(name, holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: holder, TTL: s.h.TTL}
}

func (s *suite) acquire(r lease.AcquireRequest) lease.Lease {
	s.Helper()
	l, err := s.store.Acquire(s.Context(), r)
	require.NoError(s, err)
	return l
}

// refused checks that r is refused, and returns why.
func (s *suite) refused(r lease.AcquireRequest) lease.HeldError {
	s.Helper()
	l, err := s.store.Acquire(s.Context(), r)
	require.Zero(s, l)
	held := requireAs[*lease.HeldError](s, err, lease.ErrHeld)
	require.Equal(s, r.Name, held.Name)
	require.Positive(s, held.Remaining)
	require.Positive(s, held.Retry, "a retry at once is a storm")
	require.LessOrEqual(s, held.Retry, max(min(held.Remaining, time.Second), 10*time.Millisecond)+s.h.Precision)
	return *held
}

// succeed acquires as soon as possible.
func (s *suite) succeed(r lease.AcquireRequest) lease.Lease {
	s.Helper()
	var l lease.Lease
	s.eventually(func() bool {
		var err error
		if l, err = s.store.Acquire(s.Context(), r); err != nil {
			require.ErrorIs(s, err, lease.ErrHeld)
		}
		return err == nil
	}, "%s is never granted", r.Name)
	return l
}

func (s *suite) renew(c lease.Claim, ttl time.Duration) lease.Lease {
	s.Helper()
	l, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: c, TTL: ttl})
	require.NoError(s, err)
	return l
}

func (s *suite) renewError(c lease.Claim) error {
	s.Helper()
	l, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: c, TTL: long})
	require.Error(s, err)
	require.Zero(s, l)
	return err
}

func (s *suite) release(c lease.Claim) {
	s.Helper()
	require.NoError(s, s.store.Release(s.Context(), c))
}

// releasedInTime acquires a lease that expires soon, and releases it before that.
func (s *suite) releasedInTime(r lease.AcquireRequest) (l lease.Lease) {
	s.Helper()
	s.eventually(func() bool {
		l = s.acquire(r)
		err := s.store.Release(s.Context(), l.Claim)
		if err != nil {
			require.ErrorIs(s, err, lease.ErrExpired)
			s.Log("this machine was too busy to release in time: beginning again")
		}
		return err == nil
	}, "no lease can be released")
	return l
}

func (s *suite) get(name string) lease.Record {
	s.Helper()
	r, err := s.store.Get(s.Context(), name)
	require.NoError(s, err)
	return r
}

// expire waits until a lease has expired.
func (s *suite) expire(name string) lease.Record {
	s.Helper()
	var r lease.Record
	s.eventually(func() bool {
		r = s.get(name)
		return r.State != lease.Held
	}, "the lease on %s never expires", name)
	return r
}

func (s *suite) list(r lease.ListRequest) []lease.Record {
	s.Helper()
	var records []lease.Record
	for record, err := range s.store.List(s.Context(), r) {
		require.NoError(s, err)
		records = append(records, record)
	}
	return records
}

func (s *suite) sweep(r lease.SweepRequest) lease.SweepResult {
	s.Helper()
	result, err := s.store.Sweep(s.Context(), r)
	require.NoError(s, err)
	return result
}

// forget sweeps until n names are forgotten. Their leases must have ended.
func (s *suite) forget(n int) {
	s.Helper()
	s.eventually(func() bool {
		n -= s.sweep(lease.SweepRequest{Retention: time.Nanosecond}).Removed
		return n <= 0
	}, "a sweep never forgets")
	require.Zero(s, n, "a sweep forgot what it must not")
}

// eventually polls on this goroutine, so that condition may use require.
func (s *suite) eventually(condition func() bool, message string, args ...any) {
	s.Helper()
	deadline := time.Now().Add(s.bound())
	tick := time.NewTicker(max(s.h.TTL/20, 5*time.Millisecond))
	defer tick.Stop()
	for !condition() {
		require.True(s, time.Now().Before(deadline), append([]any{message}, args...)...)
		<-tick.C
	}
}

// unchanged checks that f does not change the stored state of job.
func (s *suite) unchanged(f func()) {
	s.Helper()
	before := s.get("job")
	f()
	requireSame(s, before, s.get("job"))
}

// requireSame compares the parts that do not change by themselves.
func requireSame(s *suite, before, after lease.Record) {
	s.Helper()
	require.Equal(s, before.Version, after.Version)
	requireSameLease(s, before.Lease, after.Lease)
}

func requireSameLease(s *suite, want, got lease.Lease) {
	s.Helper()
	require.Equal(s, want.Claim, got.Claim)
	require.WithinDuration(s, want.AcquiredAt, got.AcquiredAt, 0)
	require.WithinDuration(s, want.ExpiresAt, got.ExpiresAt, 0)
	require.Len(s, got.Metadata, len(want.Metadata))
	for key, value := range want.Metadata {
		require.Equal(s, value, got.Metadata[key], "metadata %q", key)
	}
}

// requireAs checks the type of an error, and that it matches its condition.
func requireAs[E error](s *suite, err, condition error) (e E) {
	s.Helper()
	require.ErrorAs(s, err, &e)
	require.ErrorIs(s, err, condition)
	return e
}

// requireStale checks that err is a *lease.StaleError with these details.
func requireStale(s *suite, err error, want lease.StaleError) {
	s.Helper()
	require.Equal(s, want, *requireAs[*lease.StaleError](s, err, lease.ErrStale))
}

// requireExpired checks that err says when l expired.
func requireExpired(s *suite, err error, l lease.Lease) {
	s.Helper()
	expired := requireAs[*lease.ExpiredError](s, err, lease.ErrExpired)
	require.Equal(s, l.Name, expired.Name)
	require.WithinDuration(s, l.ExpiresAt, expired.At, 0)
}

func requireNotFound(s *suite, err error, name string) {
	s.Helper()
	require.Equal(s, name, requireAs[*lease.NotFoundError](s, err, lease.ErrNotFound).Name)
}
