package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNodesThatCountAtTheSameMomentStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	const limit, locks, nodes = 10_000, 400, 16
	taken := 0
	for range nodes {
		var r room
		assert.Equal(t, int64(limit), r.limit(limit, 1), "it has not counted yet")
		r.counted(limit, locks, 0)
		for r.limit(limit, 10) == 0 {
			taken += 10
		}
	}
	assert.LessOrEqual(t, taken, limit-locks)
	assert.Greater(t, taken, (limit-locks)*9/10, "else each claim would count")
}

func TestWhatIsNearlyFullIsCountedEachTime(t *testing.T) {
	t.Parallel()
	var r room
	r.counted(150, 140, 0)
	assert.Equal(t, int64(150), r.limit(150, 1))
	r.counted(150, 160, 0)
	assert.Equal(t, int64(150), r.limit(150, 1))
	r.counted(150, 10, 100)
	assert.Zero(t, r.limit(150, 2))
	r.counted(150, 0, 0) // was not counted
	assert.Equal(t, int64(150), r.limit(150, 2))
}
