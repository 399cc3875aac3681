package introspect_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
)

// BenchmarkAsk gives the time of a question to 1 and to 100 processes of 20 locks each.
func BenchmarkAsk(b *testing.B) {
	for _, processes := range []int{1, 100} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			dsn := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{"max_connections": "300"}}).DSN("postgres")
			answering(b, dsn, processes)
			conn := dial(b, dsn)
			var all []time.Duration
			for range b.N {
				begin := time.Now()
				answers, err := introspect.Ask(b.Context(), conn, introspect.Question{Timeout: 10 * time.Second})
				require.NoError(b, err)
				require.Len(b, answers.Answers, processes)
				all = append(all, time.Since(begin))
			}
			slices.Sort(all)
			b.ReportMetric(ms(all[len(all)/2]), "ms_p50")
			b.ReportMetric(ms(all[len(all)*99/100]), "ms_p99")
		})
	}
}

// BenchmarkBeside gives the cycles of lock and unlock on 8 sessions that are left while ten questions a
// second are asked, in turns with none, beside 2,000 further sessions: of which none listens, 100 are
// processes that answer, or all listen.
func BenchmarkBeside(b *testing.B) {
	for _, kind := range []string{"idle", "100 answer", "2000 listen"} {
		b.Run(kind, func(b *testing.B) {
			dsn := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{"max_connections": "2300"}}).DSN("postgres")
			sessions := 2000
			if kind == "100 answer" {
				sessions -= 100
				answering(b, dsn, 100)
			}
			var wg sync.WaitGroup
			next := make(chan struct{})
			for range 20 {
				wg.Go(func() {
					for range next {
						conn := dial(b, dsn)
						if kind == "2000 listen" {
							_, err := conn.Exec(b.Context(), "LISTEN pglatch_ask")
							require.NoError(b, err)
						}
					}
				})
			}
			for range sessions {
				next <- struct{}{}
			}
			close(next)
			wg.Wait()
			var ratios []float64
			for range b.N {
				without := cycles(b, dsn, false)
				ratios = append(ratios, float64(cycles(b, dsn, true))/float64(without))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(ratios[0], "least")
		})
	}
}

// cycles counts those of a second.
func cycles(b *testing.B, dsn string, asked bool) int64 {
	b.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	for i := range 8 {
		conn := dial(b, dsn)
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := conn.Exec(b.Context(), "SELECT pg_advisory_lock(1, $1)", i)
				require.NoError(b, err)
				_, err = conn.Exec(b.Context(), "SELECT pg_advisory_unlock(1, $1)", i)
				require.NoError(b, err)
				n.Add(1)
			}
		})
	}
	if asked {
		conn := dial(b, dsn)
		wg.Go(func() {
			for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				_, err := introspect.Ask(b.Context(), conn, introspect.Question{})
				require.NoError(b, err)
			}
		})
	}
	wg.Wait()
	return n.Load()
}

// answering starts sources that answer as so many processes do, and waits until they listen.
func answering(b *testing.B, dsn string, processes int) {
	b.Helper()
	for i := range processes {
		cc, err := pgx.ParseConfig(dsn)
		require.NoError(b, err)
		network, address := "tcp", net.JoinHostPort(cc.Host, fmt.Sprint(cc.Port))
		if cc.Host[0] == '/' {
			network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", cc.Host, cc.Port)
		}
		cc.Host = fmt.Sprintf("127.0.%d.%d", 1+i/250, 1+i%250) // each another one, and all the same server
		cc.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		cc.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
		m := introspect.Join(introspect.Member{Conn: cc, Source: &orders{n: 20}})
		b.Cleanup(m.Leave)
		m.Connected()
	}
	conn := dial(b, dsn)
	for listeners := 0; listeners < processes; {
		err := conn.QueryRow(b.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pglatch answers: %' AND state = 'idle' AND query ~ '^LISTEN '`).Scan(&listeners)
		require.NoError(b, err)
	}
}

func dial(b *testing.B, dsn string) *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(context.WithoutCancel(b.Context()), dsn)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	return conn
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
