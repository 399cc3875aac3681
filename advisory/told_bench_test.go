//go:build unix

package advisory_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/processors"
)

// BenchmarkTold gives the processor time for each lock when a connection of many locks is lost. The package's documentation
// names it.
func BenchmarkTold(b *testing.B) {
	for name, ended := range map[string]func(*advisory.Lock) <-chan struct{}{
		"Lost":    (*advisory.Lock).Lost,
		"Context": func(l *advisory.Lock) <-chan struct{} { return l.Context().Done() },
	} {
		b.Run(name, func(b *testing.B) {
			var costs []time.Duration
			for range b.N {
				costs = append(costs, costOfLoss(b, ended))
			}
			b.ReportMetric(float64(slices.Min(costs).Nanoseconds())/1000, "µs/lock") // a busy machine only adds to it
			b.ReportMetric(0, "ns/op")
		})
	}
}

func costOfLoss(b *testing.B, ended func(*advisory.Lock) <-chan struct{}) time.Duration {
	b.Helper()
	const locks = 10_000
	server := memory.NewServer()
	l, err := openOn(server, advisory.Config{LocksPerConn: locks, MaxLocks: locks})
	require.NoError(b, err)
	defer l.Close()
	var holders, ready sync.WaitGroup
	for i := range int64(locks) {
		lock, err := l.Acquire(context.Background(), entity(i))
		require.NoError(b, err)
		lost := ended(lock)
		ready.Add(1)
		holders.Go(func() {
			ready.Done()
			<-lost
		})
	}
	ready.Wait()
	await.Until(b, await.Soon, func() bool { return l.Stats().Sessions == 1 && l.Stats().SessionsInUse == 1 })
	before := processors.Used(b)
	server.KillSessions()
	holders.Wait()
	return (processors.Used(b) - before) / locks
}
