package leadertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Harness describes how to test an implementation of driver.Backend.
type Harness struct {
	// New begins a fresh election and returns a function that creates one node's backend for each call. The
	// suite releases and closes these backends. Required.
	New func(t *testing.T) func() driver.Backend

	// TTL is the lease duration that the suite requests. It should be short, because the suite waits for its
	// end a few times. It should be several times longer than a call can take: a case whose steps took too long
	// is repeated with a lease that is half as long again. Required.
	TTL time.Duration

	// Kill ends the session (or whatever else carries the leadership) of backend from outside. Leadership
	// must then be free at once, or after TTL. nil = the suite lets leadership expire instead.
	Kill func(t *testing.T, backend driver.Backend)

	// Cut cuts backend's network until heal is called. nil = not tested.
	Cut func(t *testing.T, backend driver.Backend) (heal func())

	// Mistakes maps names to functions that create a backend with a permanent error, such as a wrong
	// password or a missing table. No attempt with such a backend can succeed until somebody fixes it. The
	// suite closes these backends. nil = not tested.
	Mistakes map[string]func(t *testing.T) driver.Backend

	// WaitSpendsTerms means that a leadership that Wait acquired already has a term. If that leadership
	// is given up, nobody leads in that term, and the next leader's term is greater by more than one.
	WaitSpendsTerms bool
}

// Run runs the conformance suite as parallel subtests of t. It checks the contract of driver.Backend and of
// each optional interface that the backends implement. For a backend without terms it skips the checks that
// need terms.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "leadertest: Harness.New")
	require.Positive(t, h.TTL, "leadertest: Harness.TTL")
	for _, c := range slices.Concat(exclusionCases, leaseCases, termCases, waitCases, cancelCases, observeCases, permanentCases, stressCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := h // its lease grows
			for left := mostTries; !play(t, h, c); left-- {
				require.Positive(t, left, "this machine is too busy for leases of %v", h.TTL)
				h.TTL += h.TTL / 2
			}
		})
	}
}

// mostTries is how often a case is repeated because its steps took longer than a lease. Each time the lease is half as long
// again, the last time 17 times as long.
const mostTries = 7

// errTooSlow ends a case in which a lease may have ended between two steps, so that its result means nothing.
var errTooSlow = errors.New("leadertest: the steps took longer than the lease")

// play runs a case in an election of its own, and reports whether its result means anything.
func play(t *testing.T, h Harness, c testCase) (shown bool) {
	t.Helper()
	defer func() {
		if r := recover(); r == errTooSlow { //nolint:errorlint // it is that very value
			t.Log("this machine was too busy for the lease: beginning again")
		} else if r != nil {
			panic(r)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	s := &suite{T: t, h: h, ttl: h.TTL, node: h.New(t), ctx: ctx, acted: time.Now()}
	defer s.end(cancel)
	c.run(s)
	return true
}

// A testCase tests one property.
type testCase struct {
	name string
	run  func(s *suite)
}

// A suite runs one test case on one election.
type suite struct {
	*testing.T
	h    Harness
	ttl  time.Duration
	node func() driver.Backend

	ctx  context.Context // context of this play
	work sync.WaitGroup  // goroutines of this play

	confirmed time.Time     // when the last attempt or renewal that succeeded began
	acted     time.Time     // when the last call ended
	longest   time.Duration // longest time between the ends of two consecutive calls
	dropped   bool          // a backend gave up its connection, because the store was too slow
}

// Context returns a context that ends with this run of the case.
func (s *suite) Context() context.Context { return s.ctx }

// end ends the goroutines of a run, before the backends are closed.
func (s *suite) end(cancel func()) {
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.work.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(s.bound()):
	}
}

// hurry gives up the case if the lease that was confirmed last may have ended, a little before its TTL.
func (s *suite) hurry() {
	if time.Since(s.confirmed) > s.ttl*4/5 {
		panic(errTooSlow)
	}
}

// called records the end of a call.
func (s *suite) called() {
	now := time.Now()
	s.longest, s.acted = max(s.longest, now.Sub(s.acted)), now
}

// excuse gives up the case after a failure, if a session may have ended because this machine stood still.
func (s *suite) excuse() {
	if s.dropped || s.longest > s.ttl/2 {
		panic(errTooSlow)
	}
}

// bound returns the time limit for anything that should come soon.
func (s *suite) bound() time.Duration { return 20*s.ttl + 10*time.Second }

// backend creates a node's backend, which is closed at the end.
func (s *suite) backend() driver.Backend {
	b := s.node()
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.bound())
		defer cancel()
		_ = b.Release(ctx, "cleanup")
		shut(b)
	})
	return b
}

func shut(b driver.Backend) {
	if closer, ok := b.(io.Closer); ok {
		_ = closer.Close()
	}
}

// try repeats attempts until one is not pending.
func (s *suite) try(b driver.Backend, identity string) (bool, error) {
	ctx, cancel := context.WithTimeout(s.Context(), s.bound())
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, max(s.ttl, time.Second))
		ok, err := b.TryAcquire(attempt, identity, s.ttl)
		end()
		if !errors.Is(err, driver.ErrPending) || ctx.Err() != nil {
			return ok, err
		}
	}
}

// lead makes b lead, which must succeed at once.
func (s *suite) lead(b driver.Backend, identity string) {
	s.Helper()
	began := time.Now()
	ok, err := s.try(b, identity)
	s.called()
	if !ok {
		s.excuse()
	}
	require.NoError(s, err, "%s acquires leadership that is free", identity)
	require.True(s, ok, "%s acquires leadership that is free", identity)
	s.confirmed = began
}

// refuse checks that b cannot lead, because another node does.
func (s *suite) refuse(b driver.Backend, identity string) {
	s.Helper()
	ok, err := s.try(b, identity)
	s.called()
	if err != nil {
		s.excuse()
	}
	require.NoError(s, err, "%s asks for leadership that is taken", identity)
	if ok {
		s.hurry()
	}
	require.False(s, ok, "%s acquires leadership that is taken", identity)
}

// succeed makes b lead as soon as it can. An attempt may fail, because sessions were killed before. Then b
// gets the calls that an Elector makes in that case.
func (s *suite) succeed(b driver.Backend, identity string) {
	s.Helper()
	s.longest = 0
	s.eventually(func() bool {
		s.confirmed = time.Now()
		ok, err := s.try(b, identity)
		if err != nil {
			s.longest = max(s.longest, time.Since(s.confirmed))
			s.Logf("%s tries again after: %v", identity, err)
			_ = b.Release(s.Context(), identity)
			shut(b)
		}
		return ok
	}, "%s never leads", identity)
	s.acted = time.Now()
}

func (s *suite) release(b driver.Backend, identity string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.bound())
	defer cancel()
	err := b.Release(ctx, identity)
	s.called()
	if err != nil {
		s.excuse()
	}
	require.NoError(s, err, "%s releases", identity)
}

// keep renews b's leadership, which must succeed.
func (s *suite) keep(b driver.Backend, identity string) {
	s.Helper()
	began := time.Now()
	err := s.renew(b, identity)
	s.called()
	if err != nil {
		s.hurry()
		s.excuse()
	}
	require.NoError(s, err, "%s renews its leadership", identity)
	s.confirmed = began
}

func (s *suite) renew(b driver.Backend, identity string) error {
	ctx, cancel := context.WithTimeout(s.Context(), s.bound())
	defer cancel()
	return b.Renew(ctx, identity, s.ttl)
}

// endLeadership ends b's leadership without b's help.
func (s *suite) endLeadership(b driver.Backend) {
	if s.h.Kill != nil {
		s.h.Kill(s.T, b)
	}
	// Without Kill, the lease expires because nobody renews it.
}

// eventually polls on this goroutine, because all calls of one backend must come from one goroutine.
func (s *suite) eventually(condition func() bool, message string, args ...any) {
	s.Helper()
	deadline := time.Now().Add(s.bound())
	tick := time.NewTicker(max(s.ttl/50, 5*time.Millisecond))
	defer tick.Stop()
	for !condition() {
		require.True(s, time.Now().Before(deadline), append([]any{message}, args...)...)
		<-tick.C
	}
}

// needs skips the case if the backend lacks the interface.
func needs[Ability any](s *suite, b driver.Backend) Ability {
	s.Helper()
	ability, ok := b.(Ability)
	if !ok {
		s.Skipf("%T has no such ability", b)
	}
	return ability
}

// term returns the term of b's last leadership. It skips the case if there are no terms.
func (s *suite) term(b driver.Backend) driver.Term {
	s.Helper()
	term := needs[driver.Termer](s, b).Term()
	if term.IsZero() {
		s.Skipf("%T counts no terms here", b)
	}
	return term
}
