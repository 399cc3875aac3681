package bench

import (
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// handoverLease is the lease of all leaders here. Their other times are its defaults.
const handoverLease = time.Second

// BenchmarkHandover measures from the end of one leadership to OnAcquired of the
// next leader, which is already waiting then.
func BenchmarkHandover(b *testing.B) {
	for _, g := range grounds {
		b.Run("backend="+g.name, func(b *testing.B) {
			target := g.open(b)
			b.Run("graceful", func(b *testing.B) { graceful(b, target) })
			b.Run("kill-9", func(b *testing.B) { killed(b, target) })
			if !g.local {
				b.Run("silent-cut", func(b *testing.B) { silentCut(b, target) })
			}
		})
	}
	b.Run("terminated", terminated)
	b.Run("peer=pglock", peerPglock)
	b.Run("peer=poll-2s", peerPoll)
}

// graceful measures from the call of Shutdown.
func graceful(b *testing.B, target string) {
	b.Helper()
	old := newNode(b, target, handoverLease)
	<-old.acquired
	var g gauge
	for b.Loop() {
		next := newNode(b, target, handoverLease)
		next.awaitFollowing()
		began := time.Now()
		old.stop(b)
		g.add((<-next.acquired).Sub(began))
		old = next
	}
	old.stop(b)
	g.report(b)
}

// killed measures from the kill -9 of a leader in another process.
func killed(b *testing.B, target string) {
	b.Helper()
	var g gauge
	for b.Loop() {
		child := startLeader(b, leaderConfig{target, handoverLease})
		next := newNode(b, target, handoverLease)
		next.awaitFollowing()
		began := time.Now()
		child.Signal(syscall.SIGKILL)
		g.add((<-next.acquired).Sub(began))
		next.stop(b)
	}
	g.report(b)
}

// awaitFollowing waits until the node waits for leadership. Then it waits until a random moment
// between two renewals of the leader, or between two polls of a node that polls.
func (n *node) awaitFollowing() {
	<-n.refused
	<-time.After(100*time.Millisecond + rand.N(handoverLease/3))
}

func startLeader(b *testing.B, c leaderConfig) *proctest.Process {
	b.Helper()
	p := proctest.Start(b, proctest.As(b, leading, c))
	p.Expect("leading")
	return p
}

// terminated measures from the pg_terminate_backend of the leader's session.
func terminated(b *testing.B) {
	dsn := pgtest.DSN(b)
	conn := pgtest.Connect(b, dsn)
	var g gauge
	for b.Loop() {
		old := newNode(b, dsn, 0)
		<-old.acquired
		next := newNode(b, dsn, 0)
		awaitWaiter(b, conn)
		began := time.Now()
		_, err := conn.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_locks
			WHERE locktype = 'advisory' AND classid = 7 AND objid = 100 AND objsubid = 2 AND granted`)
		require.NoError(b, err)
		g.add((<-next.acquired).Sub(began))
		old.stop(b)
		next.stop(b)
	}
	g.report(b)
}

// silentCut measures from the moment at which no more data arrives.
func silentCut(b *testing.B, target string) {
	b.Helper()
	var g gauge
	var stops gauge // until the context of the cut leader ended
	for b.Loop() {
		proxy, through := newProxy(b, target)
		old := newNode(b, through, handoverLease)
		<-old.acquired
		next := newNode(b, target, handoverLease)
		next.awaitFollowing()
		began := time.Now()
		proxy.Set(faultproxy.Hold)
		stops.add((<-old.lost).Sub(began))
		g.add((<-next.acquired).Sub(began))
		proxy.Close()
		old.stop(b)
		next.stop(b)
	}
	g.report(b)
	b.ReportMetric(float64(slices.Max(stops))/float64(time.Millisecond), "stopped-max-ms")
}

func newProxy(b *testing.B, dsn string) (*faultproxy.Proxy, string) {
	b.Helper()
	server, err := url.Parse(dsn)
	require.NoError(b, err)
	proxy, err := faultproxy.New(b.Context(), server.Host)
	require.NoError(b, err)
	b.Cleanup(proxy.Close)
	through, err := proxy.URL(dsn)
	require.NoError(b, err)
	return proxy, through
}
