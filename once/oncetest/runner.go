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

var runnerCases = []testCase{
	{"many runners run each tick once", func(s *suite) {
		const nodes, ticks = 4, 5
		var (
			wg   sync.WaitGroup
			runs [ticks]atomic.Int32
		)
		for range nodes {
			r := runner(s, once.Config{Store: s.store, TTL: long})
			wg.Go(func() {
				for i := range ticks {
					tick := s.tick.Add(-time.Duration(i) * time.Second)
					result, err := r.Do(s.Context(), "report", tick, func(ctx context.Context) error {
						c, ok := once.ClaimOf(ctx)
						assert.True(s, ok)
						assert.Equal(s, tick, c.Tick)
						assert.NotZero(s, c.Token)
						runs[i].Add(1)
						return nil
					})
					assert.NoError(s, err)
					assert.NotEqual(s, once.Open, result.State)
					assert.True(s, !result.Did || result.State == once.Ran)
				}
			})
		}
		wg.Wait()
		for i := range runs {
			assert.EqualValues(s, 1, runs[i].Load(), i)
		}
	}},
	{"a run that lasts longer than its TTL keeps the tick", func(s *suite) {
		r := runner(s, once.Config{Store: s.store, TTL: 10 * s.h.TTL, Node: "a"})
		run := func() error {
			_, err := r.Do(s.Context(), "report", s.tick, func(ctx context.Context) error {
				s.pause(13 * s.h.TTL)
				if ctx.Err() == nil {
					assert.Equal(s, once.Running, s.taken(s.request("b")).State)
				}
				return context.Cause(ctx)
			})
			return err
		}
		err := run()
		for again := 0; errors.Is(err, once.ErrLost) && again < 3; again++ {
			s.Log("this machine was too busy to renew in time: beginning again")
			s.tick = s.tick.Add(-time.Minute)
			err = run()
		}
		require.NoError(s, err)
		assert.Equal(s, once.Ran, s.look("report", s.tick).State)
	}},
	{"a waiting runner gets the tick of a run that died", func(s *suite) {
		died := s.claim(s.brief("a"))
		r := runner(s, once.Config{Store: s.store, TTL: long, Wait: s.bound()})
		result, err := r.Do(s.Context(), "report", s.tick, func(ctx context.Context) error {
			c, _ := once.ClaimOf(ctx)
			assert.Greater(s, c.Token, died.Token)
			return nil
		})
		require.NoError(s, err)
		assert.True(s, result.Did)
	}},
	{"a run that failed is repeated only if it is to be", func(s *suite) {
		cause := errors.New("no paper")
		fail := func(context.Context) error { return cause }
		result, err := runner(s, once.Config{Store: s.store, TTL: long}).Do(s.Context(), "report", s.tick, fail)
		require.ErrorIs(s, err, cause)
		assert.Equal(s, []any{true, once.Failed}, []any{result.Did, result.State})
		result, err = runner(s, once.Config{Store: s.store, TTL: long}).Do(s.Context(), "report", s.tick, fail)
		require.NoError(s, err)
		assert.Equal(s, []any{false, once.Failed}, []any{result.Did, result.State})

		s.tick = s.tick.Add(-time.Minute)
		again := runner(s, once.Config{Store: s.store, TTL: long, Retry: func(err error) bool { return errors.Is(err, cause) }})
		result, err = again.Do(s.Context(), "report", s.tick, fail)
		require.ErrorIs(s, err, cause)
		assert.Equal(s, []any{true, once.Open}, []any{result.Did, result.State})
		result, err = again.Do(s.Context(), "report", s.tick, nothing)
		require.NoError(s, err)
		assert.Equal(s, []any{true, once.Ran}, []any{result.Did, result.State})
	}},
	{"a run that its ctx cut short is given back", func(s *suite) {
		ctx, cancel := context.WithCancel(s.Context())
		r := runner(s, once.Config{Store: s.store, TTL: long})
		result, err := r.Do(ctx, "report", s.tick, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(s, err, context.Canceled)
		assert.Equal(s, once.Open, result.State)
		result, err = r.Do(s.Context(), "report", s.tick, nothing)
		require.NoError(s, err)
		assert.True(s, result.Did)
	}},
	{"missed ticks are those that nobody has run", func(s *suite) {
		r := runner(s, once.Config{Store: s.store, TTL: long, Window: 10 * time.Minute})
		minutely := func(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }
		since := s.tick.Add(-4 * time.Minute)
		for i, state := range []once.State{once.Ran, once.Failed, once.Open, once.Running} {
			request := s.request("a")
			request.Tick = since.Add(time.Duration(i) * time.Minute)
			c := s.claim(request)
			if state != once.Running {
				s.end(c, state)
			}
		}
		missed, err := r.Missed(s.Context(), "report", since, minutely)
		require.NoError(s, err)
		require.GreaterOrEqual(s, len(missed), 2)
		assert.WithinDuration(s, since.Add(2*time.Minute), missed[0], 0)
		assert.WithinDuration(s, s.tick, missed[1], 0)
		all, err := r.Missed(s.Context(), "report", time.Time{}, minutely)
		require.NoError(s, err)
		assert.Greater(s, len(all), len(missed)+3, "the window begins a minute later if a minute begins")
		later := runner(s, once.Config{Store: s.store, TTL: long, Window: time.Hour}) // the oldest tick can leave the window of r
		for _, tick := range all {
			_, err := later.Do(s.Context(), "report", tick, nothing)
			require.NoError(s, err)
		}
		missed, err = r.Missed(s.Context(), "report", since, func(t time.Time) time.Time {
			if t = minutely(t); t.After(s.tick) {
				return time.Time{}
			}
			return t
		})
		require.NoError(s, err)
		assert.Empty(s, missed)
	}},
}
