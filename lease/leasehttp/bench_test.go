package leasehttp_test

import (
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/processors"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/sqlite"
)

const benchClients = 80

func benchmark(b *testing.B, h *httptest.Server, cycle func(b *testing.B, cl *leasehttp.Client, worker string)) {
	b.Helper()
	cl := servetest.Client(b, h, leasehttp.ClientConfig{})
	var workers atomic.Int64
	b.SetParallelism(benchClients / 2)
	start := processors.Used(b)
	b.RunParallel(func(pb *testing.PB) {
		worker := strconv.FormatInt(workers.Add(1), 10)
		for pb.Next() {
			cycle(b, cl, worker)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64((processors.Used(b)-start).Microseconds())/float64(b.N), "cpu-us/cycle")
}

// BenchmarkUncontended acquires and releases, each client a lock of its own.
func BenchmarkUncontended(b *testing.B) { benchmark(b, inMemory(b), cycle) }

func inMemory(b *testing.B) *httptest.Server {
	b.Helper()
	_, h := servetest.Serve(b, leaseserver.Config{})
	return h
}

func cycle(b *testing.B, cl *leasehttp.Client, worker string) {
	b.Helper()
	l, err := cl.Acquire(b.Context(), lease.AcquireRequest{Name: "lock-" + worker, Holder: worker, TTL: time.Minute})
	if err != nil {
		b.Error(err)
		return
	}
	if err := cl.Release(b.Context(), l.Claim); err != nil {
		b.Error(err)
	}
}

// BenchmarkUncontendedDurable is BenchmarkUncontended on a store that syncs to disk: with some numbers of
// goroutines of one client, and with separate clients, which share no requests.
func BenchmarkUncontendedDurable(b *testing.B) {
	for _, workers := range []int{1, 2, 8, benchClients} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			share(b, slices.Repeat([]*leasehttp.Client{servetest.Client(b, durable(b), leasehttp.ClientConfig{})}, workers))
		})
	}
	b.Run("separate", func(b *testing.B) {
		h := durable(b)
		clients := make([]*leasehttp.Client, benchClients)
		for i := range clients {
			clients[i] = servetest.Client(b, h, leasehttp.ClientConfig{})
		}
		share(b, clients)
	})
}

// durable serves a store that syncs to disk.
func durable(b *testing.B) *httptest.Server {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	_, h := servetest.Serve(b, leaseserver.Config{Store: store})
	return h
}

// share has workers cycle b.N times together, each with its client.
func share(b *testing.B, clients []*leasehttp.Client) {
	b.Helper()
	start := processors.Used(b)
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for i, cl := range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				cycle(b, cl, strconv.Itoa(i))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64((processors.Used(b)-start).Microseconds())/float64(b.N), "cpu-us/cycle")
}

// BenchmarkHotLock acquires and releases one lock, waiting in the server, on a store in memory and on one that syncs to disk.
func BenchmarkHotLock(b *testing.B) {
	for name, serve := range map[string]func(*testing.B) *httptest.Server{"memory": inMemory, "durable": durable} {
		b.Run(name, func(b *testing.B) { hotLock(b, serve(b)) })
	}
}

func hotLock(b *testing.B, h *httptest.Server) {
	b.Helper()
	benchmark(b, h, func(b *testing.B, cl *leasehttp.Client, worker string) {
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
