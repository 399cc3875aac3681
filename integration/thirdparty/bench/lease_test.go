package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// workers is the number of concurrent clients.
const workers = 80

// A contender is a system that is measured.
type contender struct {
	name     string
	client   system.Client
	workers  int
	requests func() float64 // acquire requests that its server has answered; nil = not counted
}

// A spell is the result of one system in a turn.
type spell struct {
	perSecond float64
	p50, p99  float64 // milliseconds of a cycle
	cpu       float64 // microseconds of this process, per cycle
	requests  float64 // acquire requests per grant
}

// measure makes the workers of one system cycle for a time, and checks the exclusion.
func measure(b *testing.B, c contender, keys workload.Keys, d time.Duration) (s spell) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "exclusion")
	require.NoError(b, exclusion.Create(path))
	table, err := exclusion.Open(path)
	require.NoError(b, err)
	defer table.Close()
	requests := 0.0
	if c.requests != nil {
		requests = c.requests()
	}
	used := cpu(b)
	sample, err := workload.Load{Keys: keys, Workers: c.workers, Duration: d}.Run(b.Context(), c.client, table)
	require.NoError(b, err, c.name)
	grants := float64(sample.Latencies.Count())
	require.Positive(b, grants, c.name)
	at := func(q float64) float64 { return float64(sample.Latencies.At(q)) / float64(time.Millisecond) }
	s = spell{perSecond: sample.OpsPerSecond, p50: at(0.5), p99: at(0.99), cpu: float64((cpu(b) - used).Microseconds()) / grants}
	if c.requests != nil {
		s.requests = (c.requests() - requests) / grants
	}
	return s
}

// BenchmarkLease measures acquire and release cycles of 80 clients in the process of their
// server: pglatch's on SQLite and on PostgreSQL, and etcd's lock. All of them sync to disk
// before they acknowledge. The systems take turns of two seconds. Ratios compare cycles per
// second, as the median over all turns.
func BenchmarkLease(b *testing.B) {
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: b.TempDir()}) // calls fsync before it acknowledges
	require.NoError(b, err)
	b.Cleanup(stop)
	contenders := []contender{newEtcd(b, workers, address), newLockServer(b, "sqlite", workers, openSQLite(b)), newPostgres(b)}
	for _, load := range loads {
		b.Run(load.name, func(b *testing.B) {
			takeTurns(b, contenders, load.keys)
		})
	}
}

// takeTurns measures the systems in turn and compares them.
func takeTurns(b *testing.B, contenders []contender, keys workload.Keys) {
	b.Helper()
	spells := make([][]spell, len(contenders))
	for _, c := range contenders {
		measure(b, c, keys, turn/4) // opens connections and fills caches
	}
	for b.Loop() {
		for i, c := range contenders {
			spells[i] = append(spells[i], measure(b, c, keys, turn))
		}
	}
	compare(b, contenders, spells)
}

// loads says which locks the workers of a benchmark use.
var loads = []struct {
	name string
	keys workload.Keys
}{{"uncontended", workload.Own}, {"hot", workload.Hot}}

const turn = 2 * time.Second

// compare reports the medians, and the ratios of pglatch's to etcd's, which is the first.
func compare(b *testing.B, contenders []contender, spells [][]spell) {
	b.Helper()
	median := func(system int, of func(spell) float64) float64 { return gauge.MedianOf(spells[system], of) }
	rate := func(s spell) float64 { return s.perSecond }
	for i, c := range contenders {
		b.ReportMetric(median(i, rate), c.name+"-cycles/s")
		b.ReportMetric(median(i, func(s spell) float64 { return s.p50 }), c.name+"-p50-ms")
		b.ReportMetric(median(i, func(s spell) float64 { return s.p99 }), c.name+"-p99-ms")
		b.ReportMetric(median(i, func(s spell) float64 { return s.cpu }), c.name+"-cpu-us/cycle")
		if i > 0 {
			b.ReportMetric(median(i, rate)/median(0, rate), c.name+"/etcd")
			b.ReportMetric(median(i, func(s spell) float64 { return s.requests }), c.name+"-requests/grant")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// startCluster starts members as separate processes. They too call fsync before they acknowledge.
func startCluster(b *testing.B, size int) []*etcdtest.Process {
	b.Helper()
	return etcdtest.StartCluster(b, b.TempDir(), size)
}

func addresses(members []*etcdtest.Process) (all []string) {
	for _, m := range members {
		all = append(all, m.Address)
	}
	return all
}

// newEtcd opens etcd's own lock.
func newEtcd(b *testing.B, workers int, addresses ...string) contender {
	b.Helper()
	etcd, err := system.Find("etcd")
	require.NoError(b, err)
	client, err := etcd.Open(b.Context(), system.Env{Addresses: map[system.Server]string{system.Etcd: strings.Join(addresses, ",")}, Workers: workers})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	return contender{name: "etcd", client: client, workers: workers}
}

// BenchmarkLeaseOnEtcd measures acquire and release cycles through a lock server in this
// process on an etcd cluster. It compares them with etcd's own lock on the same members, in
// turns of two seconds.
func BenchmarkLeaseOnEtcd(b *testing.B) {
	for _, members := range []int{1, 3} {
		addresses := addresses(startCluster(b, members))
		store, err := etcd.Open(b.Context(), etcd.Config{Client: clientv3.Config{Endpoints: addresses}})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, store.Close()) })
		for _, clients := range []int{1, 8, 80} {
			b.Run(fmt.Sprintf("members=%d/clients=%d", members, clients), func(b *testing.B) { // at whose end its server ends, so that it is no other's peer
				contenders := []contender{newEtcd(b, clients, addresses...), newLockServer(b, "lockserver", clients, store)}
				for _, load := range loads {
					b.Run(load.name, func(b *testing.B) { takeTurns(b, contenders, load.keys) })
				}
			})
		}
	}
}

// openSQLite opens a store with its durable setting.
func openSQLite(b *testing.B) lease.Store {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store
}

// durable has the default durability of PostgreSQL.
var durable = pgserver.Options{Settings: map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}}

// newPostgres returns a lock server on a PostgreSQL with the default durability.
func newPostgres(b *testing.B) contender {
	b.Helper()
	server := pgtest.StartServer(b, durable)
	config, err := pgxpool.ParseConfig(server.DSN(""))
	require.NoError(b, err)
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	store, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(b, err)
	require.NoError(b, store.Migrate(b.Context()))
	return newLockServer(b, "postgres", workers, store)
}

// newLockServer serves a store. Its workers wait in line through one client, which keeps a
// connection for each.
func newLockServer(b *testing.B, name string, workers int, store lease.Store) contender {
	b.Helper()
	url, server := serve(b, store)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{url}})
	require.NoError(b, err)
	b.Cleanup(client.Close)
	return contender{name: name, client: overHTTP{client: client}, workers: workers, requests: func() float64 { return acquires(b, server) }}
}

// serve serves a store over HTTP.
func serve(b *testing.B, store lease.Store) (url string, server *leaseserver.Server) {
	b.Helper()
	server, err := leaseserver.New(leaseserver.Config{Store: store})
	require.NoError(b, err)
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, listener) })
	b.Cleanup(func() {
		stop()
		serving.Wait()
	})
	return "http://" + listener.Addr().String(), server
}

// overHTTP takes the locks of a lock server.
type overHTTP struct {
	system.Client // nil: only Cycle is called

	client *leasehttp.Client
}

func (c overHTTP) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	l, err := c.client.AcquireWait(ctx, lease.AcquireRequest{Name: fmt.Sprint("lock-", key), Holder: "worker", TTL: time.Minute}, time.Minute)
	if err != nil {
		return err
	}
	held()
	return c.client.Release(context.WithoutCancel(ctx), l.Claim)
}

// acquires returns how many acquire requests a server has answered.
func acquires(b *testing.B, server *leaseserver.Server) (n float64) {
	b.Helper()
	families, err := server.Registry.Gather()
	require.NoError(b, err)
	for _, family := range families {
		if family.GetName() != "lock_acquire_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}
