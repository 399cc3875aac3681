package oncetest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/once"
)

// A Harness configures the test of a once.Store implementation, whose clock is about this
// machine's.
type Harness struct {
	// New makes an empty store, and closes it with t.Cleanup. Required.
	New func(t *testing.T) once.Store

	// TTL is the TTL of claims that the suite lets expire. It should be several times longer than a
	// call can take on a busy machine. 0 = 300 ms.
	TTL time.Duration
}

// Run runs the conformance suite as parallel subtests of t.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "oncetest: Harness.New")
	h.TTL = cmp.Or(h.TTL, 300*time.Millisecond)
	for _, c := range slices.Concat(claimCases, endCases, lookCases, runnerCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := h.New(t)
			c.run(&suite{T: t, h: h, store: store, tick: once.Normal(time.Now().Truncate(time.Minute))})
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
	store once.Store
	tick  time.Time // of this minute
}

// long is a TTL that does not end while the suite runs.
const long = once.MaxTTL

func (s *suite) request(node string) once.Request {
	return once.Request{Job: "report", Tick: s.tick, Node: node, TTL: long, Window: time.Hour, Early: time.Minute}
}

// brief returns a request for a claim that expires soon.
func (s *suite) brief(node string) once.Request {
	r := s.request(node)
	r.TTL = s.h.TTL
	return r
}

func (s *suite) claim(r once.Request) once.Claim {
	s.Helper()
	c, err := s.store.Claim(s.Context(), r)
	require.NoError(s, err)
	assert.Equal(s, []any{r.Job, r.Tick, r.Node}, []any{c.Job, c.Tick, c.Node})
	assert.NotEmpty(s, c.ID)
	assert.NotZero(s, c.Token)
	assert.Positive(s, c.Remaining)
	assert.LessOrEqual(s, c.Remaining, r.TTL)
	assert.WithinDuration(s, time.Now(), c.Began, time.Minute)
	return c
}

// takes claims a tick as soon as the previous claim has expired.
func (s *suite) takes(r once.Request) once.Claim {
	s.Helper()
	for end := time.Now().Add(s.bound()); ; {
		c, err := s.store.Claim(s.Context(), r)
		if err == nil {
			return c
		}
		require.ErrorIs(s, err, once.ErrTaken)
		require.Less(s, time.Now(), end, "the claim does not expire")
		s.pause(s.h.TTL / 10)
	}
}

// bound is the maximum duration of anything that should come soon.
func (s *suite) bound() time.Duration { return 20*s.h.TTL + 10*time.Second }

// pause waits for time to pass in the store.
func (s *suite) pause(d time.Duration) { _ = pause.For(s.Context(), d) }

func (s *suite) end(c once.Claim, state once.State) {
	s.Helper()
	require.NoError(s, s.store.End(s.Context(), c, state))
}

// taken requires that a tick cannot be claimed, and returns its record.
func (s *suite) taken(r once.Request) once.Record {
	s.Helper()
	_, err := s.store.Claim(s.Context(), r)
	var taken *once.TakenError
	require.ErrorAs(s, err, &taken)
	assert.Equal(s, []any{r.Job, r.Tick}, []any{taken.Job, taken.Tick})
	return taken.Record
}

// lost requires that a claim can be neither renewed nor ended.
func (s *suite) lost(c once.Claim) {
	s.Helper()
	_, err := s.store.Renew(s.Context(), c, long)
	require.ErrorIs(s, err, once.ErrLost)
	for _, state := range []once.State{once.Ran, once.Failed, once.Open} {
		require.ErrorIs(s, s.store.End(s.Context(), c, state), once.ErrLost, state)
	}
}

// look returns the only record of a tick.
func (s *suite) look(job string, tick time.Time) once.Record {
	s.Helper()
	records, err := s.store.Look(s.Context(), job, tick, tick)
	require.NoError(s, err)
	require.Len(s, records, 1)
	return records[0]
}

func runner(tb testing.TB, c once.Config) *once.Runner {
	tb.Helper()
	r, err := once.New(c)
	require.NoError(tb, err)
	return r
}

func nothing(context.Context) error { return nil }
