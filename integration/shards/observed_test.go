//go:build integration

package shards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/leader"
)

// observed is what an observer says of operations a millisecond apart, of a node, a shard and a term each.
func observed(operations ...[3]int) (late []lateOperation, faulty []string) {
	o := &observer{shards: make(map[int][]tenure)}
	for i, op := range operations {
		at := time.Unix(1, 0).Add(time.Duration(i) * time.Millisecond)
		one := operation{node: op[0], pid: 100 + op[0], shard: op[1], term: leader.Term{Era: 1, N: uint64(op[2])}, looked: at}
		o.see(decodeOperation(one.encode(), at))
	}
	return o.drain()
}

func TestAnOperationAfterThatOfALaterTermOfTheShardIsLate(t *testing.T) {
	t.Parallel()
	late, faulty := observed([3]int{1, 7, 1}, [3]int{2, 7, 2}, [3]int{1, 8, 1}, [3]int{1, 7, 1}, [3]int{2, 7, 2})
	assert.Empty(t, faulty)
	if assert.Len(t, late, 1) {
		assert.Equal(t, 7, late[0].shard)
		assert.Equal(t, 2*time.Millisecond, late[0].by())
	}
}

func TestAnOwnershipWhoseTermDoesNotRiseIsLate(t *testing.T) {
	t.Parallel()
	late, _ := observed([3]int{1, 7, 2}, [3]int{2, 7, 1})
	assert.Len(t, late, 1)
}

func TestTwoOwnersInOneTermAreFound(t *testing.T) {
	t.Parallel()
	_, faulty := observed([3]int{1, 7, 1}, [3]int{2, 8, 1}, [3]int{2, 7, 1})
	assert.Len(t, faulty, 1)
}
