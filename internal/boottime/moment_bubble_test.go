package boottime_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/boottime"
)

// suspended is m as it is after a suspension of d: only one clock ran on.
func suspended(m boottime.Moment, d time.Duration) boottime.Moment {
	return boottime.Moment{Mono: m.Mono, Boot: m.Boot - d}
}

func TestTheFirstClockThatReachesAMomentEndsIt(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	end := boottime.Present().Add(hour)
	assert.False(t, end.Passed(), "the control")
	assert.Greater(t, end.Until(), hour/2)
	assert.Less(t, end.Since(), -hour/2)
	for name, m := range map[string]boottime.Moment{
		"the machine was suspended": suspended(end, hour),
		"the clock of package time": {Mono: end.Mono.Add(-hour), Boot: end.Boot},
	} {
		assert.True(t, m.Passed(), name)
		assert.LessOrEqual(t, m.Until(), time.Duration(0), name)
		assert.GreaterOrEqual(t, m.Since(), time.Duration(0), name)
	}
}

func TestTheTimeBetweenTwoMomentsCountsASuspension(t *testing.T) {
	t.Parallel()
	now := boottime.Present()
	assert.Equal(t, time.Minute, now.Add(time.Minute).Sub(now))
	assert.Equal(t, -time.Minute, now.Sub(now.Add(time.Minute)))
	assert.Equal(t, time.Hour, now.Sub(suspended(now, time.Hour)))
	assert.GreaterOrEqual(t, suspended(now, time.Hour).Since(), time.Hour)
}

func TestAMomentPassesInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := boottime.Present().Add(time.Minute)
		time.Sleep(time.Minute - 1)
		assert.False(t, end.Passed())
		time.Sleep(time.Nanosecond)
		assert.True(t, end.Passed())
		assert.Equal(t, time.Duration(0), end.Until())
		time.Sleep(time.Minute)
		assert.Equal(t, time.Minute, end.Since())
	})
}

func TestTheZeroMomentIsLongPast(t *testing.T) {
	t.Parallel()
	for _, m := range []boottime.Moment{{}, boottime.Moment{}.Add(time.Hour)} {
		assert.True(t, m.Passed())
		assert.Less(t, m.Until(), -time.Hour)
		assert.Greater(t, m.Since(), time.Hour)
	}
}
