package shardstest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	shards "github.com/pglatch/pglatch/leader/shards/driver"
)

// A Harness describes how to test an implementation of driver.Backend.
type Harness struct {
	// New begins a fresh group and returns a function that creates one node's backend for each call.
	// Required.
	New func(t *testing.T) func() shards.Backend

	// TTL is the ttl that the suite requests. It should be short, because the suite waits for its end a few
	// times. It should be several times longer than a call can take on a busy machine. Required.
	TTL time.Duration

	// Kill ends a session from outside, and its node is notified. The session's shards must then be free at
	// once, or after TTL. nil = the suite lets a session expire instead.
	Kill func(t *testing.T, b shards.Backend, s shards.Session)

	// Cut cuts a backend's network until heal is called. nil = not tested.
	Cut func(t *testing.T, b shards.Backend) (heal func())

	// Many is the number of shards that one node owns in the largest test. 0 = 2,000.
	Many int
}

// Run runs the conformance suite as parallel subtests of t.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "shardstest: Harness.New")
	require.Positive(t, h.TTL, "shardstest: Harness.TTL")
	for _, c := range slices.Concat(ownershipCases, viewCases, endCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&suite{T: t, h: h, ttl: h.TTL, node: h.New(t)})
		})
	}
}

// A testCase tests one property.
type testCase struct {
	name string
	run  func(s *suite)
}

// A suite runs one test case on one group.
type suite struct {
	*testing.T
	h    Harness
	ttl  time.Duration
	node func() shards.Backend
}

// bound returns the time limit for anything that should come soon.
func (s *suite) bound() time.Duration { return 20*s.ttl + 10*time.Second }

func (s *suite) context() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), s.bound())
	s.Cleanup(cancel)
	return ctx
}

// open opens a session of a new node and renews it until the case ends, unless it is left alone.
func (s *suite) open(identity string) shards.Session {
	s.Helper()
	return s.openOn(s.node(), identity)
}

func (s *suite) openOn(b shards.Backend, identity string) shards.Session {
	s.Helper()
	o := s.openAlone(b, identity)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(s.ttl / 5)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				renewal, cancel := context.WithTimeout(ctx, s.ttl)
				_, _ = o.Renew(renewal, s.ttl) // other cases check the result
				cancel()
			case <-ctx.Done():
				return
			}
		}
	}()
	s.Cleanup(func() { stop(); <-done })
	return o
}

// openAlone opens a session without renewals.
func (s *suite) openAlone(b shards.Backend, identity string) shards.Session {
	s.Helper()
	o, err := b.Open(s.context(), member(identity), s.ttl)
	require.NoError(s, err, "%s opens a session", identity)
	s.Cleanup(func() { _ = o.Close() })
	return o
}

func member(identity string) shards.Member {
	return shards.Member{Identity: identity, Weight: 100, List: 7}
}

// claim claims names and returns those that it got, sorted.
func (s *suite) claim(o shards.Session, names ...string) []string {
	s.Helper()
	var got []string
	for _, g := range s.grants(o, names...) {
		got = append(got, g.Name)
	}
	slices.Sort(got)
	return got
}

func (s *suite) grants(o shards.Session, names ...string) []shards.Grant {
	s.Helper()
	grants, err := o.Claim(s.context(), names)
	require.NoError(s, err, "claiming %d shards", len(names))
	return grants
}

func (s *suite) release(o shards.Session, names ...string) {
	s.Helper()
	require.NoError(s, o.Release(s.context(), names), "releasing %d shards", len(names))
}

func (s *suite) look(o shards.Session) shards.View {
	s.Helper()
	v, err := o.Look(s.context(), 0)
	require.NoError(s, err, "looking")
	return v
}

// end ends a session without its node's help. Without Kill, the session must be one that nobody renews.
func (s *suite) end(b shards.Backend, o shards.Session) {
	if s.h.Kill != nil {
		s.h.Kill(s.T, b, o)
	}
}

// eventually polls.
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
