package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/namespace"
)

// leading is the role of a process that leads until it is killed.
const leading = "leader"

// A leaderConfig configures a leading process.
type leaderConfig struct {
	Target string
	Lease  time.Duration // 0 = the default
}

func TestMain(m *testing.M) {
	etcdtest.Main() // does not return if this process is a member
	proctest.Play(leading, lead)
	proctest.Play(owning, ownShards)
	pgtest.Main(m)
}

// lead is the child's main function. It prints a line when it leads.
func lead(ctx context.Context, c leaderConfig) error {
	backend, _, err := newBackend(c.Target)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Name: "bench", Backend: backend, LeaseDuration: c.Lease})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context) error {
		fmt.Println("leading")
		<-ctx.Done()
		return nil
	})
}

var election = namespace.Pair(7, 100)

// A node is an elector with the times at which it acquired leadership.
type node struct {
	*leader.Elector
	acquired chan time.Time
	lost     chan time.Time // when its context ended
	refused  chan struct{}  // it has found that another node leads
}

// newNode starts a node and shuts it down at the end of the benchmark. Its lease is ttl;
// 0 = the default.
func newNode(b *testing.B, target string, ttl time.Duration) *node {
	b.Helper()
	backend, shut, err := newBackend(target)
	require.NoError(b, err)
	b.Cleanup(shut)
	n := &node{acquired: make(chan time.Time, 1), lost: make(chan time.Time, 1), refused: make(chan struct{}, 1)}
	n.Elector, err = leader.New(leader.Config{Name: "bench", Backend: backend, LeaseDuration: ttl, Callbacks: leader.Callbacks{
		OnAcquired: func(leader.Term) {
			n.acquired <- time.Now()
			context.AfterFunc(n.Elector.Context(), func() { n.lost <- time.Now() })
		},
		OnAcquireFailed: func(err error) {
			if err == nil {
				select {
				case n.refused <- struct{}{}:
				default:
				}
			}
		},
	}})
	require.NoError(b, err)
	require.NoError(b, n.Elector.Start(context.Background()))
	b.Cleanup(func() { n.stop(b) })
	return n
}

func (n *node) stop(b *testing.B) {
	b.Helper()
	require.NoError(b, n.Shutdown(context.Background()))
}

// awaitWaiter waits until a session waits for the election's lock in PostgreSQL.
func awaitWaiter(b *testing.B, conn *pgx.Conn) {
	b.Helper()
	const sql = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = 7 AND objid = 100 AND objsubid = 2 AND NOT granted"
	await.Until(b, await.Patience, func() bool {
		var ok bool
		require.NoError(b, conn.QueryRow(context.Background(), sql).Scan(&ok))
		return ok
	})
}

// durations collects durations and reports their median and 99th percentile.
type durations []time.Duration

func (g *durations) add(d time.Duration) { *g = append(*g, d) }

func (g durations) report(b *testing.B) {
	b.Helper()
	slices.Sort(g)
	at := func(p float64) float64 {
		return float64(g[min(int(p*float64(len(g))), len(g)-1)]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(0, "ns/op")
}
