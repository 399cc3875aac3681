package oncetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/once"
)

var endCases = []testCase{
	{"a tick that was run is not run again", func(s *suite) {
		for _, state := range []once.State{once.Ran, once.Failed} {
			c := s.claim(s.request("a"))
			s.end(c, state)
			s.end(c, state)
			r := s.taken(s.request("b"))
			assert.Equal(s, []any{state, "a", c.Token}, []any{r.State, r.Node, r.Token})
			assert.WithinDuration(s, c.Began, r.Began, time.Millisecond)
			assert.WithinDuration(s, time.Now(), r.Ended, time.Minute)
			assert.False(s, r.Ended.Before(r.Began))
			s.tick = s.tick.Add(-time.Minute)
		}
	}},
	{"a tick that was given back is claimed with a higher token", func(s *suite) {
		first := s.claim(s.request("a"))
		s.end(first, once.Open)
		second := s.claim(s.request("b"))
		assert.Greater(s, second.Token, first.Token)
		s.lost(first)
		s.end(second, once.Ran)
	}},
	{"a run that outlived its claim ends well if nobody else has the tick", func(s *suite) {
		for _, state := range []once.State{once.Ran, once.Failed} {
			c := s.claim(s.brief("a"))
			s.expire(c)
			s.end(c, state)
			r := s.taken(s.request("b"))
			assert.Equal(s, []any{state, "a", c.Token}, []any{r.State, r.Node, r.Token})
			s.tick = s.tick.Add(-time.Minute)
		}
		c := s.claim(s.brief("a"))
		s.expire(c)
		s.end(c, once.Open)
		s.claim(s.request("b"))
	}},
	{"a claim that expired is not renewed", func(s *suite) {
		c := s.claim(s.brief("a"))
		s.expire(c)
		_, err := s.store.Renew(s.Context(), c, long)
		require.ErrorIs(s, err, once.ErrLost)
	}},
	{"what has ended one way does not end another way", func(s *suite) {
		c := s.claim(s.request("a"))
		s.end(c, once.Ran)
		require.ErrorIs(s, s.store.End(s.Context(), c, once.Failed), once.ErrLost)
		assert.Equal(s, once.Ran, s.taken(s.request("b")).State)
		_, err := s.store.Renew(s.Context(), c, long)
		require.ErrorIs(s, err, once.ErrLost)
	}},
	{"only the claim ends a run", func(s *suite) {
		c := s.claim(s.request("a"))
		for _, change := range []func(*once.Claim){
			func(c *once.Claim) { c.ID += "x" },
			func(c *once.Claim) { c.Token++ },
		} {
			forged := c
			change(&forged)
			s.lost(forged)
		}
		s.end(c, once.Ran)
	}},
}

// expire waits until a claim has expired.
func (s *suite) expire(c once.Claim) {
	s.Helper()
	for end := time.Now().Add(s.bound()); ; {
		records, err := s.store.Look(s.Context(), c.Job, c.Tick, c.Tick)
		require.NoError(s, err)
		if len(records) == 0 || records[0].State == once.Open {
			return
		}
		require.Less(s, time.Now(), end, "the claim does not expire")
		s.pause(s.h.TTL / 10)
	}
}
