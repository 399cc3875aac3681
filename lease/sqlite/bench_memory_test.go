package sqlite_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

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
