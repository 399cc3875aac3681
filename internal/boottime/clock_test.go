package boottime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAClockTellsTheTimeOfNow(t *testing.T) {
	t.Parallel()
	var c Clock
	for range 100_000 {
		before := Now()
		told := c.At(time.Now())
		after := Now()
		assert.GreaterOrEqual(t, told, before-maxJump)
		if !assert.LessOrEqual(t, told, after+maxJump) {
			return
		}
	}
}

func TestAReadingEndsWithASuspensionAndInAWhile(t *testing.T) {
	t.Parallel()
	assert.True(t, holds(time.Millisecond, time.Millisecond))
	assert.False(t, holds(time.Millisecond, time.Hour), "the machine was suspended")
	assert.False(t, holds(time.Millisecond, -time.Hour), "the wall clock was set back")
	assert.False(t, holds(time.Second, time.Second))
}
