package oncetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/once"
)

var claimCases = []testCase{
	{"a tick is claimed by one node at a time", func(s *suite) {
		c := s.claim(s.request("a"))
		r := s.taken(s.request("b"))
		assert.Equal(s, []any{once.Running, "a", c.Token}, []any{r.State, r.Node, r.Token})
		assert.WithinDuration(s, c.Began, r.Began, 0)
		assert.Equal(s, once.Running, s.taken(s.request("a")).State, "its own node has it already")
	}},
	{"ticks and jobs are claimed on their own", func(s *suite) {
		s.claim(s.request("a"))
		later := s.request("b")
		later.Tick = later.Tick.Add(time.Microsecond)
		s.claim(later)
		other := s.request("b")
		other.Job = "report/eu@" + other.Tick.Format(time.RFC3339)
		s.claim(other)
	}},
	{"a tick that died is claimed with a higher token", func(s *suite) {
		first := s.claim(s.brief("a"))
		second := s.takes(s.brief("b"))
		third := s.takes(s.request("a"))
		assert.Greater(s, second.Token, first.Token)
		assert.Greater(s, third.Token, second.Token)
		s.lost(first)
		s.lost(second)
		s.end(third, once.Ran)
		assert.Equal(s, third.Token, s.taken(s.request("b")).Token)
	}},
	{"a renewal keeps a claim", func(s *suite) {
		r := s.brief("a")
		r.TTL *= 5 // leaves enough time to renew
		c := s.claim(r)
		remaining, err := s.store.Renew(s.Context(), c, long)
		for end := time.Now().Add(s.bound()); errors.Is(err, once.ErrLost) && time.Now().Before(end); {
			s.Log("this machine was too busy to renew in time: beginning again")
			c = s.takes(r)
			remaining, err = s.store.Renew(s.Context(), c, long)
		}
		require.NoError(s, err)
		assert.Greater(s, remaining, long/2)
		s.pause(6 * s.h.TTL)
		assert.Equal(s, once.Running, s.taken(s.request("b")).State)
		s.end(c, once.Ran)
	}},
	{"a tick is refused when it is too old, and when it is too early", func(s *suite) {
		r := s.request("a")
		r.Tick = once.Normal(time.Now().Add(-2 * time.Hour))
		for _, late := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
			r.Tick = once.Normal(time.Now().Add(-late))
			_, err := s.store.Claim(s.Context(), r)
			var e *once.WindowError
			require.ErrorAs(s, err, &e)
			assert.Equal(s, []any{r.Job, r.Tick}, []any{e.Job, e.Tick})
			assert.InDelta(s, late, e.Late, float64(time.Minute))
			records, err := s.store.Look(s.Context(), r.Job, r.Tick, r.Tick)
			require.NoError(s, err)
			for _, record := range records {
				assert.Equal(s, once.Open, record.State)
			}
		}
		r.Window, r.Early = 3*time.Hour, once.MaxEarly
		r.Tick = once.Normal(time.Now().Add(-2 * time.Hour))
		s.end(s.claim(r), once.Ran)
		r.Tick = once.Normal(time.Now().Add(once.MaxEarly / 2))
		s.end(s.claim(r), once.Ran)
		assert.Equal(s, once.Ran, s.taken(r).State)
	}},
	{"a request that is invalid is refused", func(s *suite) {
		for name, change := range map[string]func(*once.Request){
			"no job":      func(r *once.Request) { r.Job = "" },
			"a bad job":   func(r *once.Request) { r.Job = "a/../b" },
			"a long job":  func(r *once.Request) { r.Job = string(make([]byte, 401)) },
			"no node":     func(r *once.Request) { r.Node = "" },
			"a zero tick": func(r *once.Request) { r.Tick = time.Time{} },
			"a fine tick": func(r *once.Request) { r.Tick = r.Tick.Add(1) },
			"no TTL":      func(r *once.Request) { r.TTL = 0 },
			"a long TTL":  func(r *once.Request) { r.TTL = once.MaxTTL + 1 },
		} {
			r := s.request("a")
			change(&r)
			_, err := s.store.Claim(s.Context(), r)
			assert.ErrorIs(s, err, once.ErrInvalid, name)
		}
	}},
	{"of many that claim at once one gets the tick", func(s *suite) {
		const nodes, ticks = 8, 10
		var (
			wg   sync.WaitGroup
			runs [ticks]atomic.Int32
		)
		for range nodes {
			wg.Go(func() {
				for i := range ticks {
					r := s.request("a")
					r.Tick = r.Tick.Add(-time.Duration(i) * time.Second)
					c, err := s.store.Claim(s.Context(), r)
					if err != nil {
						assert.ErrorIs(s, err, once.ErrTaken)
						continue
					}
					runs[i].Add(1)
					assert.NoError(s, s.store.End(s.Context(), c, once.Ran))
				}
			})
		}
		wg.Wait()
		for i := range runs {
			assert.EqualValues(s, 1, runs[i].Load(), i)
		}
	}},
	{"a call whose ctx has ended does nothing", func(s *suite) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, err := s.store.Claim(ctx, s.request("a"))
		require.Error(s, err)
		s.claim(s.request("b"))
	}},
}
