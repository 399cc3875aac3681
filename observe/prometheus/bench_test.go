package prometheus_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	observe "github.com/pglatch/pglatch/observe/prometheus"
)

// What the Tracer adds to a cycle on a server in memory, and what a scrape of many locks takes.
func BenchmarkCycle(b *testing.B) {
	for name, tracer := range map[string]advisory.Tracer{"without": {}, "with": observe.New().Tracer()} {
		b.Run(name, func(b *testing.B) {
			l, err := advisorytest.NewServer().Open(advisory.Config{Tracer: tracer})
			require.NoError(b, err)
			defer l.Close()
			for i := 0; b.Loop(); i++ {
				lock, err := l.Acquire(context.Background(), orders.ID(int64(i%100)))
				require.NoError(b, err)
				_ = lock.Release()
			}
		})
	}
}

func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{0, 1_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			registry, metrics := prometheus.NewRegistry(), observe.New()
			registry.MustRegister(metrics)
			l, err := advisorytest.NewServer().Open(advisory.Config{Tracer: metrics.Tracer(), LocksPerConn: 100_000, MaxLocks: 100_000})
			require.NoError(b, err)
			defer l.Close()
			for i := range n {
				_, err := l.Acquire(context.Background(), orders.ID(int64(i)))
				require.NoError(b, err)
			}
			for b.Loop() {
				_, err := registry.Gather()
				require.NoError(b, err)
			}
		})
	}
}
