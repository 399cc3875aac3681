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

// A Harness says how to test an implementation of driver.Backend.
type Harness struct {
	// New begins a fresh election and returns a function that makes one node's backend
	// for each call. The suite releases and closes what it makes. Required.
	New func(t *testing.T) func() driver.Backend

	// TTL is the lease that the suite asks for. It should be short, since the suite
	// waits for its end a few times, but several times longer than a call can take on a
	// busy machine. Required.
	TTL time.Duration

	// Kill ends the session, or whatever carries the leadership of backend, from
	// outside. Leadership must be free at once, or after TTL. nil = leadership is
	// left to expire instead.
	Kill func(t *testing.T, backend driver.Backend)

	// Cut takes the network of backend away until heal is called. nil = not tested.
	Cut func(t *testing.T, backend driver.Backend) (heal func())

	// Mistakes make backends with which no attempt can succeed until somebody changes
	// something, such as a wrong password or a missing table, by their names. What they make
	// is closed by the suite. nil = not tested.
	Mistakes map[string]func(t *testing.T) driver.Backend

	// WaitSpendsTerms says that what Wait holds has a term already, which nobody leads in
	// if it is given up: the next leader's term is greater by more than one then.
	WaitSpendsTerms bool
}

// Run runs the conformance suite as parallel subtests of t. It checks the contract
// of driver.Backend and of each optional interface that the backends implement; for
// one that counts no terms, what needs terms is left out.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "leadertest: Harness.New")
	require.Positive(t, h.TTL, "leadertest: Harness.TTL")
	for _, c := range slices.Concat(exclusionCases, leaseCases, termCases, waitCases, cancelCases, observeCases, permanentCases, stressCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for left := mostTries; !play(t, h, c); left-- {
				require.Positive(t, left, "this machine is too busy for leases of %v", h.TTL)
			}
		})
	}
}

// mostTries is how often a case is played again because its steps took longer than a lease.
const mostTries = 20

// errTooSlow ends a case in which a lease may have ended between two steps, so that it shows nothing.
var errTooSlow = errors.New("leadertest: the steps took longer than the lease")

// play plays a case in an election of its own, and reports whether it showed anything.
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

// A testCase is one property.
type testCase struct {
	name string
	run  func(s *suite)
}

// A suite is one test case at work on one election.
type suite struct {
	*testing.T
	h    Harness
	ttl  time.Duration
	node func() driver.Backend

	ctx  context.Context // of this play
	work sync.WaitGroup  // goroutines of this play

	confirmed time.Time     // when the last attempt or renewal that succeeded began
	acted     time.Time     // when the last call ended
	longest   time.Duration // of the times from the end of a call to the end of the next one
	dropped   bool          // a backend gave its connection up, because the store was too slow
}

// Context ends with this play of the case.
func (s *suite) Context() context.Context { return s.ctx }

// end ends the goroutines of a play, before the backends are closed.
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

// hurry gives the case up if the lease that was confirmed last may have ended, a little before its TTL.
func (s *suite) hurry() {
	if time.Since(s.confirmed) > s.ttl*4/5 {
		panic(errTooSlow)
	}
}

// called notes the end of a call.
func (s *suite) called() {
	now := time.Now()
	s.longest, s.acted = max(s.longest, now.Sub(s.acted)), now
}

// excuse gives the case up after a failure, if a session may have ended because this machine stood still.
func (s *suite) excuse() {
	if s.dropped || s.longest > s.ttl/2 {
		panic(errTooSlow)
	}
}

// bound is how long anything may take that should come soon.
func (s *suite) bound() time.Duration { return 20*s.ttl + 10*time.Second }

// backend makes a node's backend, which is closed at the end.
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

// try makes attempts until one is not pending.
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

// refuse checks that b cannot lead, because somebody else does.
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

// succeed makes b lead as soon as it can. An attempt may fail, since sessions were
// killed before: then b gets the calls that an Elector makes then.
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

// keep renews the leadership of b, which must succeed.
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

// endLeadership takes leadership from b, without b's help.
func (s *suite) endLeadership(b driver.Backend) {
	if s.h.Kill != nil {
		s.h.Kill(s.T, b)
	}
	// Without Kill, nobody renews it.
}

// eventually polls on this goroutine, as the calls of one backend must be.
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

// needs skips a case that the backend has no interface for.
func needs[Ability any](s *suite, b driver.Backend) Ability {
	s.Helper()
	ability, ok := b.(Ability)
	if !ok {
		s.Skipf("%T has no such ability", b)
	}
	return ability
}

// term is the term of b's last leadership; the case is skipped if there are none.
func (s *suite) term(b driver.Backend) driver.Term {
	s.Helper()
	term := needs[driver.Termer](s, b).Term()
	if term.IsZero() {
		s.Skipf("%T counts no terms here", b)
	}
	return term
}
