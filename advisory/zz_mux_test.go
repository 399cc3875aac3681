package advisory_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgtest"
)

func BenchmarkMux(b *testing.B) {
	dsn := pgtest.DSN(b)
	theirs := handwritten(b, dsn)
	for _, n := range []int{0, 1, 2} {
		for _, w := range []int{1, 8, 64, 512} {
			for _, hot := range []bool{false, true} {
				if hot && w < 64 || n == 0 && w > 64 || hot && n == 2 {
					continue
				}
				locker, err := advisory.Open(b.Context(), advisory.Config{DSN: dsn, Multiplex: n})
				require.NoError(b, err)
				c := func(ctx context.Context, entity int32) error {
					lock, err := locker.Acquire(ctx, agents.ID(int64(entity)))
					if err != nil {
						return err
					}
					return lock.Release()
				}
				pick := randomKey
				if hot {
					pick = hotKey
				}
				b.Run(fmt.Sprintf("mux=%d/hot=%v/workers=%d", n, hot, w), func(b *testing.B) {
					secs := 0.5
					if s, err := strconv.ParseFloat(os.Getenv("SECS"), 64); err == nil {
						secs = s
					}
					run := func(c cycle) float64 {
						ctx, cancel := context.WithCancel(b.Context())
						defer cancel()
						var stop atomic.Bool
						time.AfterFunc(time.Duration(secs*1e9), func() { stop.Store(true) })
						start := time.Now()
						k := load(ctx, b, w, c, pick, func() bool { return !stop.Load() })
						return float64(k) / time.Since(start).Seconds()
					}
					b.ResetTimer()
					var t float64
					if os.Getenv("ONLY") == "" {
						t = run(theirs)
					}
					before := locker.Stats()
					o := run(c)
					after := locker.Stats()
					b.ReportMetric(t, "hand/s")
					b.ReportMetric(o, "ours/s")
					b.ReportMetric(o/t, "ratio")
					if d := after.Batches - before.Batches; d > 0 {
						b.ReportMetric(float64(after.Operations-before.Operations)/float64(d), "ops/batch")
					}
					b.ReportMetric(0, "ns/op")
				})
				locker.Close()
			}
		}
	}
}
