package bench

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
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
	var g durations
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
	var g durations
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
	var g durations
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
	var g durations
	var stops durations // until the context of the cut leader ended
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

// The URL schemes of stores on which a lease is the leadership.
const (
	leaseScheme = "lease-postgres"
	etcdScheme  = "etcd"
)

// grounds are the places of elections. open returns the URL by which a process finds its
// backend.
var grounds = []struct {
	name  string
	local bool // there is no network to cut
	open  func(b *testing.B) string
}{
	{name: "postgres", open: emptyDatabase},
	{name: "file", local: true, open: noFile},
	{name: "leased-sqlite-http", open: serveSQLite},
	{name: "leased-postgres", open: migrateLeases},
	{name: "leased-etcd", open: startMembers},
}

// newBackend creates the backend that a URL names. Call shut after its last use.
func newBackend(target string) (backend leader.Backend, shut func(), err error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		backend, err = postgres.New(postgres.Config{DSN: target, Key: election, CreateTable: true})
		return backend, func() {}, err
	case "file":
		return file.NewBackend(u.Path), func() {}, nil
	case "http":
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{target}})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(client, leased.Config{Name: "election"})
		return backend, client.Close, err
	case leaseScheme:
		store, err := leasepostgres.New(leasepostgres.Config{DSN: strings.TrimPrefix(target, "lease-")})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(store, leased.Config{Name: "election"})
		return backend, store.Close, err
	case etcdScheme:
		store, err := etcd.Open(context.Background(), etcd.Config{Client: clientv3.Config{Endpoints: []string{"http://" + u.Host}}})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(store, leased.Config{Name: "election"})
		return backend, func() { _ = store.Close() }, err
	}
	return nil, nil, fmt.Errorf("no backend for %s", target)
}

func emptyDatabase(b *testing.B) string {
	b.Helper()
	return pgtest.DSN(b)
}

func noFile(b *testing.B) string {
	b.Helper()
	return "file://" + filepath.Join(b.TempDir(), "leader.json")
}

func serveSQLite(b *testing.B) string {
	b.Helper()
	url, _ := serve(b, openSQLite(b))
	return url
}

// startMembers starts an etcd cluster of three members. Candidates know only one member, so
// that a proxy can cut them off.
func startMembers(b *testing.B) string {
	b.Helper()
	return etcdScheme + "://" + strings.TrimPrefix(startCluster(b, 3)[0].Address, "http://")
}

// migrateLeases creates the lease schema in a database.
func migrateLeases(b *testing.B) string {
	b.Helper()
	dsn := pgtest.DSN(b)
	store, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
	require.NoError(b, err)
	defer store.Close()
	require.NoError(b, store.Migrate(b.Context()))
	return "lease-" + dsn
}

// peerPglock measures cirello.io/pglock with a lease of one second, from Release to the
// waiting client's Acquire.
func peerPglock(b *testing.B) {
	dsn := pgtest.DSN(b)
	client := func() *pglock.Client {
		db, err := sql.Open("pgx", dsn)
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		c, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(time.Second), pglock.WithHeartbeatFrequency(300*time.Millisecond))
		require.NoError(b, err)
		return c
	}
	a, c := client(), client()
	require.NoError(b, a.TryCreateTable())
	old, err := a.Acquire("bench")
	require.NoError(b, err)
	var g durations
	for b.Loop() {
		acquired := make(chan time.Time)
		var next *pglock.Lock
		go func() {
			var err error
			next, err = c.Acquire("bench")
			if err != nil {
				panic(err)
			}
			acquired <- time.Now()
		}()
		<-time.After(100 * time.Millisecond) // its waiting is not visible anywhere
		began := time.Now()
		require.NoError(b, a.Release(old))
		g.add((<-acquired).Sub(began))
		old, a, c = next, c, a
	}
	require.NoError(b, a.Release(old))
	g.report(b)
}

// peerPoll measures the usual loop: pg_try_advisory_lock every two seconds.
func peerPoll(b *testing.B) {
	dsn := pgtest.DSN(b)
	a, c := pgtest.Connect(b, dsn), pgtest.Connect(b, dsn)
	try := func(conn *pgx.Conn) (ok bool) {
		require.NoError(b, conn.QueryRow(context.Background(), "SELECT pg_try_advisory_lock(1)").Scan(&ok))
		return ok
	}
	require.True(b, try(a))
	var g durations
	phase := time.Duration(0)
	for b.Loop() {
		acquired := make(chan time.Time)
		go func() {
			for !try(c) {
				<-time.After(2 * time.Second)
			}
			acquired <- time.Now()
		}()
		phase = (phase + 370*time.Millisecond) % (2 * time.Second) // spreads the releases over the time between two polls
		<-time.After(50*time.Millisecond + phase)
		began := time.Now()
		_, err := a.Exec(context.Background(), "SELECT pg_advisory_unlock(1)")
		require.NoError(b, err)
		g.add((<-acquired).Sub(began))
		a, c = c, a
	}
	g.report(b)
}
