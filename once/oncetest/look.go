package oncetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/once"
)

var lookCases = []testCase{
	{"what is known of ticks is in their order", func(s *suite) {
		now := s.tick
		states := []once.State{once.Ran, once.Failed, once.Open, once.Running}
		for i, state := range states {
			s.tick = now.Add(time.Duration(i) * time.Second)
			c := s.claim(s.request("a"))
			if state != once.Running {
				s.end(c, state)
			}
		}
		for _, job := range []string{"repor", "report2", "report/x", "report@", "report@2026-01-01T00:00:00.000000Z"} {
			r := s.request("b")
			r.Job = job
			s.end(s.claim(r), once.Ran)
		}
		records, err := s.store.Look(s.Context(), "report", now, now.Add(time.Hour))
		require.NoError(s, err)
		got := map[time.Time]once.State{}
		for i, r := range records {
			assert.Equal(s, []any{"report", "a"}, []any{r.Job, r.Node})
			assert.True(s, i == 0 || r.Tick.After(records[i-1].Tick))
			got[r.Tick] = r.State
		}
		for i, state := range states {
			assert.Equal(s, state, got[now.Add(time.Duration(i)*time.Second)])
		}
		records, err = s.store.Look(s.Context(), "report", now, now)
		require.NoError(s, err)
		require.Len(s, records, 1)
		records, err = s.store.Look(s.Context(), "report", now.Add(time.Microsecond), now.Add(time.Second))
		require.NoError(s, err)
		require.Len(s, records, 1)
		assert.Equal(s, once.Failed, records[0].State)
		_, err = s.store.Look(s.Context(), "", now, now)
		require.ErrorIs(s, err, once.ErrInvalid)
	}},
	{"nothing is known of a job that never ran", func(s *suite) {
		records, err := s.store.Look(s.Context(), "report", s.tick.Add(-time.Hour), s.tick)
		require.NoError(s, err)
		assert.Empty(s, records)
	}},
	{"a store says for how long it keeps what ran", func(s *suite) {
		assert.GreaterOrEqual(s, s.store.Keeps(), once.DefaultWindow)
	}},
}
