package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// The number of leases that BenchmarkLeaseMemory stores, and the limit of their memory.
const (
	storedLeases = 100_000
	memoryBound  = 200 << 20
)

// BenchmarkLeaseMemory measures the memory of "pglatch serve locks" on SQLite when it holds
// 100,000 leases that 64 clients acquired: the resident memory then, and its peak.
func BenchmarkLeaseMemory(b *testing.B) {
	for b.Loop() {
		url, pid := serveLocks(b)
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{url}})
		require.NoError(b, err)
		began := time.Now()
		const clients = 64
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for n := c; n < storedLeases; n += clients {
					name := fmt.Sprintf("tenant-%d/job-%d", n%100, n)
					_, err := client.Acquire(b.Context(), lease.AcquireRequest{Name: name, Holder: "worker-" + strconv.Itoa(c), TTL: time.Hour})
					if !assert.NoError(b, err) {
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(storedLeases/time.Since(began).Seconds(), "acquires/s")
		client.Close()
		resident, peak := memory(b, pid)
		b.ReportMetric(float64(resident)/(1<<20), "resident-MiB")
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		assert.Less(b, peak, memoryBound)
	}
	b.ReportMetric(0, "ns/op")
}

// serveLocks starts the program. It ends with the benchmark.
func serveLocks(b *testing.B) (url string, pid int) {
	b.Helper()
	dir := b.TempDir()
	binary := filepath.Join(dir, "pglatch")
	require.NoError(b, gobuild.Program(b.Context(), "../../../cmd/pglatch", binary))
	p := proctest.Start(b, proctest.Command(b, binary, "serve", "locks", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "locks.db")))
	b.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		assert.Zero(b, p.Wait())
	})
	return "http://" + p.Match(&p.Stderr, `msg=serving address=(\S+)`)[1], p.PID()
}

// memory reads VmRSS and VmHWM: proc(5), status.
func memory(b *testing.B, pid int) (resident, peak int) {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	kibibytes := func(field string) int {
		found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(data)
		require.NotNil(b, found, field)
		n, err := strconv.Atoi(string(found[1]))
		require.NoError(b, err)
		return n << 10
	}
	return kibibytes("VmRSS"), kibibytes("VmHWM")
}
