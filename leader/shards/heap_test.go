package shards_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// The store in memory is part of the figure, and the stack of work is not.
func TestAnOwnedShardTakesLittleHeap(t *testing.T) { // not parallel: it measures
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var begun atomic.Int64
	all := make(chan struct{})
	node, err := shards.New(shards.Config{Name: "tenants", Backend: shardstest.NewStore().Backend(), Count: n, LookInterval: 30 * time.Millisecond})
	require.NoError(t, err)
	before := heap()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
			if begun.Add(1) == n {
				close(all)
			}
			<-ctx.Done()
			return nil
		})
	}()
	<-all
	each := (heap() - before) / n
	t.Logf("%d bytes for each owned shard", each)
	assert.LessOrEqual(t, each, uint64(4<<10))
	stop()
	require.NoError(t, <-done)
}
