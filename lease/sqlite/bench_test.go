package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

const clients = 80

// BenchmarkStore measures operations of 80 clients at once, with one sync per
// transaction: acquire and release, on a name each, on all of 100,000, and on one for
// all, where most are refused.
func BenchmarkStore(b *testing.B) {
	for _, d := range []sqlite.Durability{sqlite.Durable, sqlite.Relaxed} {
		for _, bench := range []struct {
			name string
			lock func(client, i int) string
		}{
			{"own", func(client, _ int) string { return fmt.Sprint("job/", client) }},
			{"many", func(client, i int) string { return fmt.Sprint("job/", (client*7919+i*104729)%100_000) }},
			{"one", func(int, int) string { return "job" }},
		} {
			b.Run(d.String()+"/"+bench.name, func(b *testing.B) {
				s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "leases.db"), sqlite.Config{Durability: d})
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				cycle(b, s, bench.lock)
			})
		}
	}
}

func cycle(b *testing.B, s *sqlite.Store, name func(client, i int) string) {
	b.Helper()
	var next atomic.Int64
	var granted atomic.Int64
	var wg sync.WaitGroup
	ctx := context.Background()
	b.ResetTimer()
	for client := range clients {
		wg.Go(func() {
			for i := 0; next.Add(1) <= int64(b.N); i++ {
				l, err := s.Acquire(ctx, lease.AcquireRequest{Name: name(client, i), Holder: "worker", TTL: time.Minute})
				if errors.Is(err, lease.ErrHeld) {
					continue
				}
				if err != nil || s.Release(ctx, l.Claim) != nil {
					b.Error("failed", err)
					return
				}
				granted.Add(1)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	stats := s.Stats()
	b.ReportMetric(float64(stats.Requests)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(granted.Load())/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(stats.Requests)/float64(stats.Transactions), "ops/tx")
}

// BenchmarkAlone measures one client, whose every operation has a sync of its own.
func BenchmarkAlone(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "leases.db"), sqlite.Config{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	for b.Loop() {
		l, err := s.Acquire(b.Context(), lease.AcquireRequest{Name: "job", Holder: "worker", TTL: time.Minute})
		require.NoError(b, err)
		require.NoError(b, s.Release(b.Context(), l.Claim))
	}
}

const stored = 100_000

// BenchmarkMemory stores 100,000 leases, tells what the process takes, and does what
// looks at all of them.
func BenchmarkMemory(b *testing.B) {
	path := newPath(b)
	s := open(b, path, sqlite.Config{})
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := client; i < stored; i += clients {
				_, err := s.Acquire(b.Context(), lease.AcquireRequest{
					Name: fmt.Sprintf("tenant/%d/job/%d", i%97, i), Holder: fmt.Sprintf("worker-%d.example.org", i%50), TTL: time.Hour,
					Metadata: map[string]string{"host": "node-17.example.org", "pid": strconv.Itoa(i), "version": "1.2.3"},
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(stored/b.Elapsed().Seconds(), "acquires/s")
	n := 0
	began := time.Now()
	for _, err := range s.List(b.Context(), lease.ListRequest{}) {
		require.NoError(b, err)
		n++
	}
	require.Equal(b, stored, n)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "list-ms")
	began = time.Now()
	result, err := s.Sweep(b.Context(), lease.SweepRequest{})
	require.NoError(b, err)
	require.Equal(b, stored, result.Held)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "sweep-ms")
	peak := status(b, "VmHWM:")
	require.Less(b, peak, 200.0, "MB")
	b.ReportMetric(peak, "peak-MB")
	debug.FreeOSMemory()
	b.ReportMetric(status(b, "VmRSS:"), "resident-MB")
	require.NoError(b, s.Close())
	began = time.Now()
	require.NoError(b, open(b, path, sqlite.Config{}).Close())
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "reopen-ms")
	info, err := os.Stat(path)
	require.NoError(b, err)
	b.ReportMetric(float64(info.Size())/1e6, "file-MB")
}

// status reads a line of /proc/self/status, in MB.
func status(b *testing.B, key string) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	for line := range bytes.Lines(text) {
		var kb float64
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			_, err := fmt.Sscan(string(rest), &kb)
			require.NoError(b, err)
			return kb / 1024
		}
	}
	return 0
}
