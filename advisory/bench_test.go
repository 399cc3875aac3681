package advisory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// The benchmarks set a Locker beside the loop that a user would write by hand:
// same server, same pool size, contexts that can be canceled, one run.

const benchConns = 10

// A cycle takes and releases the lock on one key.
type cycle func(ctx context.Context, entity int32) error

func handwritten(b *testing.B, dsn string) cycle {
	b.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(b, err)
	config.MaxConns = benchConns
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return func(ctx context.Context, entity int32) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", int32(1), entity); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock($1, $2)", int32(1), entity)
		return err
	}
}

// pglatch has connections of some locks each.
func pglatch(b *testing.B, dsn string, locksPerConn int) (cycle, *advisory.Locker) {
	b.Helper()
	locker, err := advisory.Open(b.Context(), advisory.Config{DSN: dsn, MaxConns: benchConns, LocksPerConn: locksPerConn})
	require.NoError(b, err)
	b.Cleanup(locker.Close)
	return func(ctx context.Context, entity int32) error {
		lock, err := locker.Acquire(ctx, agents.ID(int64(entity)))
		if err != nil {
			return err
		}
		return lock.Release()
	}, locker
}

// load runs a cycle in n workers until stop says so and returns the cycles done.
func load(ctx context.Context, tb testing.TB, n int, c cycle, pick func() int32, more func() bool) int64 {
	tb.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for more() {
				if err := c(ctx, pick()); err != nil {
					tb.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load()
}

type benchCase struct {
	name    string
	workers int
	pick    func() int32
	goal    float64
	// multiplexed is the goal with one connection for all locks.
	multiplexed float64
}

func randomKey() int32 { return rand.Int32N(1 << 30) }

func hotKey() int32 { return 1 }

var benchCases = []benchCase{
	{"uncontended", 1, randomKey, 0.95, 0.95},
	{"uncontended", 8, randomKey, 0.95, 1},
	{"uncontended", 64, randomKey, 0.95, 4},
	{"uncontended", 512, randomKey, 0.8, 6},
	{"one_hot_key", 64, hotKey, 20, 20},
}

// BenchmarkCycle gives time and memory of one cycle for each system.
func BenchmarkCycle(b *testing.B) {
	dsn := pgtest.DSN(b)
	dedicated, _ := pglatch(b, dsn, 1)
	multiplexed, _ := pglatch(b, dsn, 1024)
	for _, system := range []struct {
		name string
		c    cycle
	}{{"handwritten", handwritten(b, dsn)}, {"pglatch", dedicated}, {"multiplexed", multiplexed}} {
		for _, bc := range benchCases {
			b.Run(fmt.Sprintf("%s/workers=%d/%s", bc.name, bc.workers, system.name), func(b *testing.B) {
				b.ReportAllocs()
				var n atomic.Int64
				load(b.Context(), b, bc.workers, system.c, bc.pick, func() bool { return n.Add(1) <= int64(b.N) })
			})
		}
	}
}

// BenchmarkRatio runs both systems in turn, one second each, b.N times, and
// reports the median ratio of their throughputs beside its goal. The guards are on
// meanwhile: the backend pid is compared in every answer, and a lock that is held
// for long is watched and pinged.
func BenchmarkRatio(b *testing.B) {
	dsn := pgtest.DSN(b)
	theirs := handwritten(b, dsn)
	for _, locksPerConn := range []int{1, 1024, 256} {
		ours, locker := pglatch(b, dsn, locksPerConn)
		b.Run(fmt.Sprintf("locksPerConn=%d", locksPerConn), func(b *testing.B) { benchRatios(b, theirs, ours, locker, locksPerConn > 1) })
	}
}

func benchRatios(b *testing.B, theirs, ours cycle, locker *advisory.Locker, multiplexed bool) {
	b.Helper()
	for _, bc := range benchCases {
		b.Run(fmt.Sprintf("%s/workers=%d", bc.name, bc.workers), func(b *testing.B) {
			goal := bc.goal
			if multiplexed {
				goal = bc.multiplexed
			}
			before := locker.SessionStats()
			var ratios, their, our []float64
			for range b.N {
				for _, m := range []struct {
					c    cycle
					into *[]float64
				}{{theirs, &their}, {ours, &our}} {
					end := time.Now().Add(time.Second)
					*m.into = append(*m.into, float64(load(b.Context(), b, bc.workers, m.c, bc.pick, func() bool { return time.Now().Before(end) })))
				}
				ratios = append(ratios, our[len(our)-1]/their[len(their)-1])
			}
			require.Greater(b, locker.SessionStats().PIDChecks, before.PIDChecks)
			b.ReportMetric(median(their), "handwritten/s")
			b.ReportMetric(median(our), "pglatch/s")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(goal, "goal")
		})
	}
}

// BenchmarkLoss gives the time from the end of a server session to the end of the
// lock's context.
func BenchmarkLoss(b *testing.B) {
	dsn := pgtest.DSN(b)
	_, locker := pglatch(b, dsn, 1)
	admin, err := pgxpool.New(b.Context(), dsn)
	require.NoError(b, err)
	defer admin.Close()
	var took []float64
	for range b.N {
		watches := locker.SessionStats().Watches
		lock, err := locker.Acquire(b.Context(), agents.ID(1))
		require.NoError(b, err)
		await.Until(b, await.Patience, func() bool { return locker.SessionStats().Watches > watches })
		var pid uint32
		for held := range locker.Held() {
			pid = held.PID
		}
		start := time.Now()
		_, err = admin.Exec(b.Context(), "SELECT pg_terminate_backend($1)", pid)
		require.NoError(b, err)
		<-lock.Context().Done()
		took = append(took, float64(time.Since(start).Microseconds()))
		require.ErrorIs(b, lock.Release(), advisory.ErrLost)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-µs")
	b.ReportMetric(took[len(took)*99/100], "p99-µs")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
