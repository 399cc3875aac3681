package leasehttp_test

import (
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

const benchClients = 80

// cpuTime is what the process used: client and server, on a machine that others use.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func benchmark(b *testing.B, cycle func(b *testing.B, cl *leasehttp.Client, worker string)) {
	b.Helper()
	_, h := servetest.Serve(b, leaseserver.Config{})
	cl := servetest.Client(b, h, leasehttp.ClientConfig{})
	var workers atomic.Int64
	b.SetParallelism(benchClients / 2)
	start := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		worker := strconv.FormatInt(workers.Add(1), 10)
		for pb.Next() {
			cycle(b, cl, worker)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(b.N), "cpu-us/cycle")
}

// BenchmarkUncontended acquires and releases, each client a lock of its own.
func BenchmarkUncontended(b *testing.B) {
	benchmark(b, func(b *testing.B, cl *leasehttp.Client, worker string) {
		b.Helper()
		l, err := cl.Acquire(b.Context(), lease.AcquireRequest{Name: "lock-" + worker, Holder: worker, TTL: time.Minute})
		if err != nil {
			b.Error(err)
			return
		}
		if err := cl.Release(b.Context(), l.Claim); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkHotLock acquires and releases one lock, waiting in the server.
func BenchmarkHotLock(b *testing.B) {
	benchmark(b, func(b *testing.B, cl *leasehttp.Client, worker string) {
		b.Helper()
		l, err := cl.AcquireWait(b.Context(), lease.AcquireRequest{Name: "hot", Holder: worker, TTL: time.Minute}, 30*time.Second)
		if err != nil {
			b.Error(err)
			return
		}
		if err := cl.Release(b.Context(), l.Claim); err != nil {
			b.Error(err)
		}
	})
}
