package postgres_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/shards"
)

func TestAnOwnedShardTakesLittleHeap(t *testing.T) { // not parallel: it measures
	pgtest.Long(t)
	const n = 10_000
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "256"}})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var begun atomic.Int64
	all := make(chan struct{})
	node, err := shards.New(shards.Config{
		Name: "tenants", Backend: newBackend(t, server.DSN(""), nil), Count: n, LookInterval: 100 * time.Millisecond, LeaseDuration: ttl,
	})
	require.NoError(t, err)
	before := heap()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	start := time.Now()
	go func() {
		done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
			if begun.Add(1) == n {
				close(all)
			}
			<-ctx.Done()
			return nil
		})
	}()
	await.Receive(t, 3*patience, all, func() string { return fmt.Sprintf("all are owned: %+v", node.Stats()) })
	t.Logf("%d shards were owned after %v", n, time.Since(start))
	each := (heap() - before) / n
	t.Logf("%d bytes for each owned shard", each)
	assert.LessOrEqual(t, each, uint64(4<<10))
	stop()
	require.NoError(t, <-done)
}
