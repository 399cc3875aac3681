package renew_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/renew"
)

// between asserts that a pause is at most longest, and at least half of it.
func between(t *testing.T, longest, pause time.Duration) {
	t.Helper()
	assert.GreaterOrEqual(t, pause, longest/2)
	assert.LessOrEqual(t, pause, longest)
}

func TestPausesGrowUntilARightHasLasted(t *testing.T) {
	t.Parallel()
	times := renew.Times{Duration: 10 * time.Second}
	const early, steady = 39 * time.Second, 40 * time.Second
	c := times.Comeback()
	for range 2 {
		assert.Zero(t, c.Lost(early), "most ends have another cause")
		for _, seconds := range []int{2, 4, 8, 16, 32, 64, 80, 80} {
			between(t, time.Duration(seconds)*time.Second, c.Lost(early))
		}
		assert.Equal(t, 9, c.Early())
		between(t, 40*time.Second, c.Failed())
		between(t, 80*time.Second, c.Lost(0))
		assert.False(t, c.Lasted(early))
		assert.Equal(t, 11, c.Early(), "an end in order that came early proves nothing")
		assert.Zero(t, c.Lost(steady))
		assert.Zero(t, c.Early(), "the count begins again")
		c.Failed()
		assert.True(t, c.Lasted(steady))
		assert.Zero(t, c.Early(), "also after an end in order")
	}
}

func TestNoTimesMeanNoPauses(t *testing.T) {
	t.Parallel()
	var c renew.Comeback
	for range 100 {
		assert.Zero(t, c.Failed())
		assert.Zero(t, c.Lost(-time.Second))
	}
}

func TestASlowErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	err := &renew.SlowError{Took: 1234567 * time.Microsecond, Duration: time.Second}
	assert.EqualError(t, err, "the store took 1.235s to answer, and LeaseDuration is 1s: raise LeaseDuration, or give the store less to do")
}
