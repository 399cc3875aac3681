package boottime_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/boottime"
)

func TestADeadlineThatWasFoundPassedStaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d boottime.Deadline
		assert.True(t, d.Passed(), "before it was set")
		assert.Negative(t, d.Left())
		assert.False(t, d.Extend(boottime.Present().Add(time.Second)))

		d.Set(boottime.Present().Add(time.Second))
		assert.False(t, d.Passed())
		time.Sleep(time.Second / 2)
		assert.InDelta(t, time.Second/2, d.Left(), float64(time.Second/2-1))
		assert.True(t, d.Extend(boottime.Present().Add(time.Second)))
		assert.True(t, d.Extend(boottime.Present()), "an earlier moment does not shorten it")
		time.Sleep(time.Second - 1)
		assert.False(t, d.Passed())
		time.Sleep(time.Nanosecond)
		assert.False(t, d.Extend(boottime.Present().Add(time.Second)), "too late")
		assert.True(t, d.Passed())
		d.Set(boottime.Present().Add(time.Second))
		assert.False(t, d.Passed())
	})
}
