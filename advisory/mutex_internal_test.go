//go:build pglatch_mutex

package advisory

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/namespace"
)

// BenchmarkMutex measures for how long a Locker's mutex is held in a cycle of Acquire and Release, on sessions in memory. On
// any number of processors, a Locker cannot make more cycles a second than fit one after the other.
func BenchmarkMutex(b *testing.B) {
	keys := namespace.Must(1, "agent")
	random := func() namespace.Key { return keys.ID(rand.Int64N(1 << 30)) }
	hot := func() namespace.Key { return keys.ID(1) }
	empty := clock()
	for _, c := range []struct {
		name                  string
		workers, locksPerConn int
		pick                  func() namespace.Key
	}{
		{"uncontended/workers=64/dedicated", 64, 1, random},
		{"uncontended/workers=64/multiplexed", 64, 1024, random},
		{"uncontended/workers=512/multiplexed", 512, 1024, random},
		{"one_hot_key/workers=64/multiplexed", 64, 1024, hot},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := session.WithSource(b.Context(), memory.NewServer().Source("bench"))
			locker, err := Open(ctx, Config{MaxConns: c.workers, LocksPerConn: c.locksPerConn, Wait: NoTimeout, MaxLocks: 4096})
			require.NoError(b, err)
			defer locker.Close()
			before := locker.core.mu.read()
			b.ResetTimer()
			var cycles atomic.Int64
			var workers sync.WaitGroup
			for range c.workers {
				workers.Go(func() {
					for cycles.Add(1) <= int64(b.N) {
						lock, err := locker.Acquire(b.Context(), c.pick())
						if err == nil {
							err = lock.Release()
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			workers.Wait()
			b.StopTimer()
			after := locker.core.mu.read()
			count := after.count - before.count
			held := float64(after.total-before.total) - float64(count)*empty
			b.ReportMetric(held/float64(b.N), "mutex-ns/cycle")
			b.ReportMetric(float64(count)/float64(b.N), "holds/cycle")
			b.ReportMetric(float64(after.long-before.long), "long-holds")
		})
	}
}

// clock is the time, in nanoseconds, for which a mutex seems to be held that is unlocked at once.
func clock() float64 {
	const times = 1_000_000
	var m mutex
	for range times {
		m.Lock()
		m.Unlock() //nolint:staticcheck // it is empty on purpose
	}
	return float64(m.holds.total) / float64(m.holds.count)
}

func (m *mutex) read() holds {
	m.Lock()
	defer m.Unlock()
	return m.holds
}
