package bench

import (
	"bufio"
	"context"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/faultproxy"
	"github.com/pglatch/pglatch/internal/pgtest"
)

// BenchmarkHandover measures from the end of one leadership to OnAcquired of the
// next leader, which waits in PostgreSQL when it happens.
func BenchmarkHandover(b *testing.B) {
	b.Run("graceful", graceful)
	b.Run("kill-9", killed)
	b.Run("terminated", terminated)
	b.Run("silent-cut", silentCut)
	b.Run("peer=pglock", peerPglock)
	b.Run("peer=poll-2s", peerPoll)
}

// graceful counts from the call of Shutdown.
func graceful(b *testing.B) {
	dsn := pgtest.DSN(b)
	conn := connect(b, dsn)
	old := newNode(b, dsn, 0)
	<-old.acquired
	var g gauge
	for b.Loop() {
		next := newNode(b, dsn, 0)
		awaitWaiter(b, conn)
		began := time.Now()
		old.stop(b)
		g.add((<-next.acquired).Sub(began))
		old = next
	}
	g.report(b)
}

// killed counts from the kill -9 of a leader that is another process.
func killed(b *testing.B) {
	dsn := pgtest.DSN(b)
	conn := connect(b, dsn)
	var g gauge
	for b.Loop() {
		child := startLeader(b, dsn)
		next := newNode(b, dsn, 0)
		awaitWaiter(b, conn)
		began := time.Now()
		require.NoError(b, child.Process.Kill())
		g.add((<-next.acquired).Sub(began))
		_ = child.Wait() // killed
		next.stop(b)
	}
	g.report(b)
}

func startLeader(b *testing.B, dsn string) *exec.Cmd {
	b.Helper()
	child := exec.CommandContext(context.Background(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dsn)
	out, err := child.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, child.Start())
	b.Cleanup(func() { _ = child.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	require.Equal(b, "leading\n", line)
	return child
}

// terminated counts from the pg_terminate_backend of the leader's session.
func terminated(b *testing.B) {
	dsn := pgtest.DSN(b)
	conn := connect(b, dsn)
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

// silentCut counts from the moment at which nothing arrives any more. The bound is
// the lease of 500 ms and the wait of a slice.
func silentCut(b *testing.B) {
	dsn := pgtest.DSN(b)
	conn := connect(b, dsn)
	var g gauge
	var stops gauge // until the cut leader's context ended
	for b.Loop() {
		proxy, through := newProxy(b, dsn)
		old := newNode(b, through, 500*time.Millisecond)
		<-old.acquired
		next := newNode(b, dsn, 500*time.Millisecond)
		awaitWaiter(b, conn)
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
