package otel

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
)

func TestNothingIsKeptOfRequestsAndLocksThatEnded(t *testing.T) {
	t.Parallel()
	server, l := advisorytest.NewServer(), newLocks(sdktrace.NewTracerProvider())
	locker, err := server.Open(advisory.Config{Tracer: l.told()})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	orders := namespace.Must(2, "order")
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, worker)) //nolint:gosec // it is no secret
			for range 200 {
				options := advisory.Options{Wait: time.Duration(r.IntN(3)+1) * time.Millisecond, Shared: r.IntN(2) == 0}
				keys := []namespace.Key{orders.ID(r.Int64N(3)), orders.ID(r.Int64N(3))}
				lock, err := locker.With(options).AcquireAll(context.Background(), keys[r.IntN(2):]...)
				if err != nil {
					continue
				}
				if r.IntN(20) == 0 {
					server.Kill(lock.PID())
				}
				_ = lock.Release()
			}
		})
	}
	all.Wait()
	locker.Close()
	assert.Empty(t, l.waits)
	assert.Empty(t, l.holds)
	assert.Empty(t, l.keys)
}
