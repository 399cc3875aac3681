package monitor

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/namespace"
)

func TestAQueueOfTwentyThousandIsNotPairedOut(t *testing.T) {
	t.Parallel()
	const n = 20_000
	locks := make([]Lock, n)
	for i := range locks {
		locks[i] = Lock{PID: uint32(i + 1), Mode: exclusive, Granted: i == 0, Tag: namespace.Pair(1, 1).Tag()}
	}
	fillQueues(locks)
	assert.Same(t, &locks[n-2].BlockedBy[0], &locks[n-1].BlockedBy[0], "a list for each waiter has n²/2 entries")
	assert.Same(t, &locks[0].Blocks[n-2], &locks[1].Blocks[n-3])
	assert.Len(t, locks[n-1].BlockedBy, n-1)
	assert.Len(t, locks[0].Blocks, n-1)
	assert.Equal(t, []uint32{1, 2, 3}, locks[3].BlockedBy)
	assert.Equal(t, uint32(5), locks[3].Blocks[0])
}
