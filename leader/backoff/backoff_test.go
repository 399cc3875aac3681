package backoff_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/leader/backoff"
)

// delays asks a strategy n times, as an Elector does.
func delays(s backoff.Strategy, n int) (all []time.Duration, more bool) {
	var last time.Duration
	for attempt := 1; attempt <= n; attempt++ {
		last, more = s.NextDelay(backoff.Retry{Attempt: attempt, Last: last})
		all = append(all, last)
	}
	return all, more
}

func TestFixedIntervalIsFixed(t *testing.T) {
	t.Parallel()
	all, more := delays(backoff.Fixed{Interval: time.Second, Jitter: -1}, 3)
	assert.Equal(t, []time.Duration{time.Second, time.Second, time.Second}, all)
	assert.True(t, more)
}

func TestExponentialBackoffGrowsToItsMaximum(t *testing.T) {
	t.Parallel()
	all, more := delays(backoff.Exponential{Jitter: -1, Max: 5 * time.Second}, 5)
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second}, all)
	assert.True(t, more)
	all, _ = delays(backoff.Exponential{Base: time.Millisecond, Multiplier: 10, Jitter: -1}, 3)
	assert.Equal(t, []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}, all)
	delay, _ := backoff.Exponential{Jitter: -1}.NextDelay(backoff.Retry{Attempt: 1 << 40})
	assert.Equal(t, 30*time.Second, delay, "no overflow")
}

func TestDefaultsAreJittered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		strategy backoff.Strategy
		min, max time.Duration
	}{
		{backoff.Fixed{}, 1600 * time.Millisecond, 2400 * time.Millisecond},
		{backoff.Exponential{}, 800 * time.Millisecond, 1200 * time.Millisecond},
		{backoff.Fixed{Interval: time.Second, Jitter: 100}, 0, 2 * time.Second},
	} {
		seen := map[time.Duration]bool{}
		for range 200 {
			delay, more := c.strategy.NextDelay(backoff.Retry{Attempt: 1})
			assert.True(t, more)
			assert.GreaterOrEqual(t, delay, c.min)
			assert.LessOrEqual(t, delay, c.max)
			seen[delay] = true
		}
		assert.Greater(t, len(seen), 100, "%T", c.strategy)
	}
}

func TestJitterDoesNotExceedTheMaximum(t *testing.T) {
	t.Parallel()
	for range 200 {
		delay, _ := backoff.Exponential{Max: 5 * time.Second}.NextDelay(backoff.Retry{Attempt: 10})
		assert.GreaterOrEqual(t, delay, 4*time.Second)
		assert.LessOrEqual(t, delay, 5*time.Second)
	}
}

func TestAStrategyWithALimitHasNoMoreAfterIt(t *testing.T) {
	t.Parallel()
	for _, s := range []backoff.Strategy{
		backoff.Fixed{MaxAttempts: 3}, backoff.Exponential{MaxAttempts: 3},
	} {
		_, more := delays(s, 2)
		assert.True(t, more, "%T", s)
		_, more = delays(s, 3)
		assert.False(t, more, "%T", s)
	}
}
