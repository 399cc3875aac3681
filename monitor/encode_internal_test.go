package monitor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

func TestALockIsEncodedOnceForAllViewersAndOnlyIfSomebodyAsks(t *testing.T) {
	t.Parallel()
	f := &flight{}
	for i := range 10 {
		f.snapshot.Locks = append(f.snapshot.Locks, Lock{PID: uint32(i), Tag: namespace.Pair(1, int32(i)).Tag()})
	}
	first, second := f.answer(nil, page{limit: 3}), f.answer(nil, page{limit: 4})
	require.Len(t, first.Locks, 3)
	for i := range first.Locks {
		assert.Same(t, &first.Locks[i][0], &second.Locks[i][0])
	}
	for i, body := range f.encoded {
		assert.Equal(t, i < 4, body != nil, i)
	}
	assert.Equal(t, 10, first.Total)
	assert.NotEmpty(t, first.Next)
}
