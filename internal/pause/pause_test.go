package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
)

func TestAPauseLastsItsTimeUnlessItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, pause.For(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(start))

		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		require.NoError(t, pause.For(ctx, -time.Second))
		require.Equal(t, enough, pause.For(ctx, time.Minute))
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
		require.Equal(t, enough, pause.For(ctx, 0), "it has ended before")
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}

// extremes returns the shortest and the longest of many durations that f chooses.
func extremes(f func() time.Duration) (least, most time.Duration) {
	least, most = f(), f()
	for range 1000 {
		d := f()
		least, most = min(least, d), max(most, d)
	}
	return least, most
}

func TestJitterSpreadsADurationAroundItself(t *testing.T) {
	t.Parallel()
	least, most := extremes(func() time.Duration { return pause.Jitter(time.Second, 0.2) })
	assert.GreaterOrEqual(t, least, 800*time.Millisecond)
	assert.Less(t, least, 900*time.Millisecond)
	assert.Greater(t, most, 1100*time.Millisecond)
	assert.LessOrEqual(t, most, 1200*time.Millisecond)
	assert.Zero(t, pause.Jitter(0, 0.2))
}

func TestAtMostSpreadsADurationOverItsSecondHalf(t *testing.T) {
	t.Parallel()
	least, most := extremes(func() time.Duration { return pause.AtMost(time.Second) })
	assert.GreaterOrEqual(t, least, 500*time.Millisecond)
	assert.Less(t, least, 600*time.Millisecond)
	assert.Greater(t, most, 900*time.Millisecond)
	assert.Less(t, most, time.Second)
	assert.Zero(t, pause.AtMost(0))
	assert.LessOrEqual(t, pause.AtMost(-time.Second), time.Duration(0))
}

func TestABackoffDoublesUpToItsLongest(t *testing.T) {
	t.Parallel()
	for failures, ms := range []int{10, 20, 40, 80, 100, 100} {
		want := time.Duration(ms) * time.Millisecond
		least, most := extremes(func() time.Duration { return pause.Backoff(failures, 10*time.Millisecond, 100*time.Millisecond) })
		assert.GreaterOrEqual(t, least, want/2)
		assert.Greater(t, most, want*9/10)
		assert.Less(t, most, want)
	}
	assert.Less(t, pause.Backoff(1<<62, time.Second, time.Minute), time.Minute, "no overflow")
}
