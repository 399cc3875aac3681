package postgres_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// durableServer is one that keeps what it acknowledged.
func durableServer(tb testing.TB) *pgserver.Server {
	tb.Helper()
	return pgtest.StartServer(tb, pgserver.Options{Settings: map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}})
}

// BenchmarkCycles runs b.N cycles of acquire and release in 80 clients, each with a
// name of its own, on a server that waits for its disk.
func BenchmarkCycles(b *testing.B) {
	dsn := durableServer(b).DSN("")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
		for _, conns := range []int32{16, 80} {
			b.Run(mode.String()+"/connections="+strconv.Itoa(int(conns)), func(b *testing.B) {
				config, err := pgxpool.ParseConfig(dsn)
				require.NoError(b, err)
				config.MaxConns, config.ConnConfig.DefaultQueryExecMode = conns, mode
				pool, err := pgxpool.NewWithConfig(b.Context(), config)
				require.NoError(b, err)
				b.Cleanup(pool.Close)
				s := open(b, "", func(c *postgres.Config) { c.Pool = pool })
				require.NoError(b, s.Migrate(b.Context()))
				cycles(b, s)
			})
		}
	}
}

func cycles(b *testing.B, s *postgres.Store) {
	b.Helper()
	const clients = 80
	times := make([][]time.Duration, clients)
	run := func(n int) {
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				name := strconv.Itoa(client)
				for range n {
					start := time.Now()
					l, err := s.Acquire(b.Context(), lease.AcquireRequest{Name: name, Holder: name, TTL: ttl})
					if err == nil {
						err = s.Release(b.Context(), l.Claim)
					}
					if err != nil {
						b.Error(err)
						return
					}
					times[client] = append(times[client], time.Since(start))
				}
			})
		}
		wg.Wait()
	}
	run(1) // connects
	clear(times)
	b.ResetTimer()
	run(max(b.N/clients, 1))
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99_ms")
}

// BenchmarkRenewAll renews 1,000 leases in one statement.
func BenchmarkRenewAll(b *testing.B) {
	s := newStore(b, durableServer(b).DSN(""))
	var all []lease.RenewRequest
	for i := range 1000 {
		all = append(all, lease.RenewRequest{Claim: acquire(b, s, strconv.Itoa(i), "h").Claim, TTL: ttl})
	}
	for b.Loop() {
		results, err := s.RenewAll(b.Context(), all)
		require.NoError(b, err)
		require.NoError(b, results[999].Err)
	}
	b.ReportMetric(float64(len(all)*b.N)/b.Elapsed().Seconds(), "renewals/s")
}

// BenchmarkHandOverBetweenServers passes one lock to and fro between two lock servers.
func BenchmarkHandOverBetweenServers(b *testing.B) {
	dsn := pgtest.DSN(b)
	peers := servetest.NewPeers(b, 0, newStore(b, dsn), newStore(b, dsn))
	servetest.ReportTimes(b, "", servetest.HandOvers(b, peers))
}
