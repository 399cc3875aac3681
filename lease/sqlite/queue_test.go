package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

func TestAQueueHasBoundsAndIsEmptiedInOrder(t *testing.T) {
	t.Parallel()
	q := newQueue()
	var all []*request
	for range maxWaiting {
		all = append(all, &request{})
		require.NoError(t, q.add(all[len(all)-1]))
	}
	require.ErrorIs(t, q.add(&request{}), lease.ErrBusy)
	first := q.take()
	require.Len(t, first, maxBatch)
	require.NoError(t, q.add(&request{}))
	q.close()
	require.Equal(t, ErrClosed, q.add(&request{}))
	n := 0
	for batch := first; len(batch) > 0; batch = q.take() {
		for _, r := range batch {
			if n < len(all) {
				require.Same(t, all[n], r)
			}
			n++
		}
	}
	require.Equal(t, maxWaiting+1, n)
	require.Empty(t, q.take())
}
