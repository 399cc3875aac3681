package monitor_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/processors"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
)

// BenchmarkManyLocksAndViewers is a monitor of one process with 20,000 locks, where 2,000 requests wait for one
// key: how long a look takes, how long the page takes and how large it is, and what 300 viewers of the live page
// cost: in a second, and for each update of one of them. The processor times are those of the monitor and of the process that has the locks.
func BenchmarkManyLocksAndViewers(b *testing.B) {
	const locks, waiters, viewers = 20_000, 2_000, 300
	server := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "1000"}})
	dsn := server.DSN("postgres")
	locker, err := advisory.Open(b.Context(), advisory.Config{
		DSN: dsn, LocksPerConn: 5_000, MaxConns: 8, MaxLocks: locks + 10, Wait: time.Hour, Answer: introspect.Config{Service: "holder"},
	})
	require.NoError(b, err)
	b.Cleanup(locker.Close)
	for id := range int64(locks) {
		_, err := locker.Acquire(b.Context(), orders.ID(id))
		require.NoError(b, err)
	}
	ctx, leave := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	b.Cleanup(waiting.Wait)
	b.Cleanup(leave)
	for range waiters {
		waiting.Go(func() { _, _ = locker.Acquire(ctx, orders.ID(1)) })
	}

	look, err := monitor.Open(monitor.Config{DSN: dsn, MinInterval: 1})
	require.NoError(b, err)
	b.Cleanup(look.Close)
	await.Until(b, await.Patience, func() bool {
		s, err := look.Snapshot(b.Context())
		require.NoError(b, err)
		return s.Total >= locks
	})
	m, err := monitor.Open(monitor.Config{DSN: dsn})
	require.NoError(b, err)
	b.Cleanup(m.Close)
	page := httptest.NewServer(m.Page())
	b.Cleanup(page.Close)
	b.Cleanup(leave) // the viewers, before it waits for them
	open := func(path string) *bufio.Scanner {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, page.URL+path, nil)
		require.NoError(b, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(b, err)
		b.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 64<<20)
		return lines
	}

	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			_, err := look.Snapshot(b.Context())
			require.NoError(b, err)
		}
	})
	b.Run("page", func(b *testing.B) {
		size := 0
		for b.Loop() {
			size = 0
			for lines := open("/"); lines.Scan(); {
				size += len(lines.Bytes()) + 1
			}
		}
		b.ReportMetric(float64(size)/1024, "KiB")
	})
	b.Run(fmt.Sprint(viewers, " viewers"), func(b *testing.B) {
		events := make(chan struct{}, 1_000_000)
		for range viewers {
			lines := open("/live?view=")
			go func() {
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "event: view") {
						events <- struct{}{}
					}
				}
			}()
		}
		for range viewers {
			<-events
		}
		const each = 5
		for b.Loop() {
			for len(events) > 0 { // what came before
				<-events
			}
			began, queries, used := time.Now(), m.Stats().Queries, processors.Used(b)
			for range each * viewers {
				<-events
			}
			spell, used := time.Since(began).Seconds(), processors.Used(b)-used
			b.ReportMetric(float64(m.Stats().Queries-queries)/spell, "queries/s")
			b.ReportMetric(each/spell, "events/viewer/s")
			b.ReportMetric(100*used.Seconds()/spell, "%processor")
			b.ReportMetric(float64(used.Microseconds())/each/viewers, "processor-µs/event")
		}
	})
}
