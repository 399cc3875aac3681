package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// BenchmarkLeaseGap measures how long no client of eight gets a lease after a kill -9: of the lock
// server that all of them use, which restarts at once, and of etcd's leader.
func BenchmarkLeaseGap(b *testing.B) {
	program := filepath.Join(b.TempDir(), "pglatch-etcd")
	require.NoError(b, gobuild.Program(b.Context(), "../../../cmd/pglatch-etcd", program))

	b.Run("server-on-sqlite", func(b *testing.B) {
		killServers(b, startServers(b, program, 1, "--store", "sqlite:"+filepath.Join(b.TempDir(), "locks.db")))
	})
	b.Run("server-on-postgres", func(b *testing.B) {
		killServers(b, startServers(b, program, 2, "--store", pgtest.DSN(b)))
	})
	members := startCluster(b, 3)
	servers := startServers(b, program, 2, "--store", "etcd://"+strings.ReplaceAll(strings.Join(addresses(members), ","), "http://", ""))
	b.Run("server-on-etcd", func(b *testing.B) { killServers(b, servers) })
	b.Run("leader-of-etcd", func(b *testing.B) {
		c := newCrowd(b, servers)
		var g durations
		for b.Loop() {
			leader := awaitLeader(b, members)
			g.add(c.gap(leader.Kill))
			leader.Start()
			awaitEqual(b, members)
		}
		g.report(b)
	})
}

// BenchmarkLeaseHandOver measures from the call of a release until the next client, which waits, has
// the lease. Both clients ask a server that forwards to the active one, on PostgreSQL.
func BenchmarkLeaseHandOver(b *testing.B) {
	program := filepath.Join(b.TempDir(), "pglatch-etcd")
	require.NoError(b, gobuild.Program(b.Context(), "../../../cmd/pglatch-etcd", program))
	servers := startServers(b, program, 2, "--store", pgtest.StartServer(b, durable).DSN(""))
	var clients [2]*leasehttp.Client
	for i := range clients {
		var err error
		clients[i], err = leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{forwarder(b, servers).url}})
		require.NoError(b, err)
		b.Cleanup(clients[i].Close)
	}
	request := func(i int) lease.AcquireRequest {
		return lease.AcquireRequest{Name: "job", Holder: fmt.Sprint(i), TTL: time.Minute}
	}
	held, err := clients[0].Acquire(b.Context(), request(0))
	require.NoError(b, err)
	var g durations
	for n := 1; b.Loop(); n++ {
		next := make(chan lease.Lease)
		go func() {
			l, err := clients[n%2].AcquireWait(b.Context(), request(n), time.Minute)
			assert.NoError(b, err)
			next <- l
		}()
		<-time.After(10 * time.Millisecond) // until it waits
		began := time.Now()
		var releasing sync.WaitGroup
		releasing.Go(func() { assert.NoError(b, clients[(n-1)%2].Release(b.Context(), held.Claim)) })
		l := <-next
		g.add(time.Since(began))
		releasing.Wait()
		held = l
	}
	g.report(b)
}

// forwarder returns a server that forwards.
func forwarder(b *testing.B, servers []*lockServer) (found *lockServer) {
	b.Helper()
	await.Until(b, await.Patience, func() bool {
		for _, s := range servers {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/metrics", http.NoBody)
			require.NoError(b, err)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(b, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(b, err)
			_ = answer.Body.Close()
			if strings.Contains(string(text), "\nlock_server_forwards 1\n") {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// killServers repeatedly kills the server in use and restarts it.
func killServers(b *testing.B, servers []*lockServer) {
	b.Helper()
	c := newCrowd(b, servers)
	var g durations
	for b.Loop() {
		used := c.at(servers)
		g.add(c.gap(func() {
			used.process.Kill()
			used.start(b) // if there is another server, the clients need not wait for this one
		}))
		used.awaitReady(b)
	}
	g.report(b)
}

// A lockServer is a lock server process at a fixed address.
type lockServer struct {
	program, url string
	args         []string
	process      *proctest.Process
}

func startServers(b *testing.B, program string, n int, store ...string) (all []*lockServer) {
	b.Helper()
	for range n {
		address := etcdtest.FreeAddress(b)
		s := &lockServer{program: program, url: "http://" + address, args: append([]string{"serve", "locks", "--listen", address}, store...)}
		s.start(b)
		s.awaitReady(b)
		all = append(all, s)
	}
	return all
}

func (s *lockServer) start(b *testing.B) {
	b.Helper()
	s.process = proctest.Start(b, proctest.Command(b, s.program, s.args...))
}

func (s *lockServer) awaitReady(b *testing.B) {
	b.Helper()
	await.Until(b, await.Patience, func() bool {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/readyz", http.NoBody)
		require.NoError(b, err)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusNoContent
	})
}

// A crowd is a set of clients that each acquire and release a lock all the time.
type crowd struct {
	b    *testing.B
	host atomic.Pointer[string] // of the server that was asked last

	mu      sync.Mutex
	last    time.Time // of a grant
	longest time.Duration
	grants  int
}

// crowded is the number of clients in a crowd.
const crowded = 8

// newCrowd starts the clients. They ask the servers in the same order, and end with the benchmark.
func newCrowd(b *testing.B, servers []*lockServer) *crowd {
	b.Helper()
	c := &crowd{b: b}
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: urls, HTTPClient: &http.Client{Transport: c.noting(transport)}})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for w := range crowded {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := client.AcquireWithRetry(ctx, fmt.Sprintf("gap-%d", w), "worker", leasehttp.AcquireOptions{MaxWait: -1})
				if err != nil {
					continue // the benchmark has ended, or is short of grants
				}
				c.granted()
				_ = client.ReleaseOnce(ctx, l)
			}
		})
	}
	b.Cleanup(func() {
		cancel()
		all.Wait()
		client.Close()
	})
	c.await(crowded)
	return c
}

type noting struct {
	*crowd
	http.RoundTripper
}

func (c *crowd) noting(next http.RoundTripper) http.RoundTripper { return noting{c, next} }

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	n.host.Store(&r.URL.Host)
	return n.RoundTripper.RoundTrip(r)
}

// at returns the server that the clients use.
func (c *crowd) at(servers []*lockServer) *lockServer {
	for _, s := range servers {
		if s.url == "http://"+*c.host.Load() {
			return s
		}
	}
	return servers[0]
}

func (c *crowd) granted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.grants++
	c.longest = max(c.longest, now.Sub(c.last))
	c.last = now
}

// await waits for this many further grants.
func (c *crowd) await(more int) {
	c.b.Helper()
	c.mu.Lock()
	enough := c.grants + more
	c.mu.Unlock()
	await.Until(c.b, await.Patience, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.grants >= enough
	})
}

// gap calls do, and returns the longest time without a grant from then until there were
// many grants again.
func (c *crowd) gap(do func()) time.Duration {
	c.b.Helper()
	c.mu.Lock()
	c.longest, c.last = 0, time.Now()
	c.mu.Unlock()
	do()
	c.await(20 * crowded)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.longest
}

// ask returns the status of one member, or nil if it does not answer.
func ask(b *testing.B, m *etcdtest.Process) *clientv3.StatusResponse {
	b.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Address}, Logger: zap.NewNop()})
	require.NoError(b, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	answer, err := client.Status(ctx, m.Address)
	if err != nil {
		return nil
	}
	return answer
}

// awaitLeader waits for a leading member and returns it.
func awaitLeader(b *testing.B, members []*etcdtest.Process) (leader *etcdtest.Process) {
	b.Helper()
	await.Until(b, await.Patience, func() bool {
		for _, m := range members {
			if a := ask(b, m); a != nil && a.Leader == a.Header.MemberId {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

// awaitEqual waits until all members have reached the newest of their current revisions.
func awaitEqual(b *testing.B, members []*etcdtest.Process) {
	b.Helper()
	var newest int64
	for _, m := range members {
		if a := ask(b, m); a != nil {
			newest = max(newest, a.Header.Revision)
		}
	}
	await.Until(b, await.Patience, func() bool {
		for _, m := range members {
			if a := ask(b, m); a == nil || a.Header.Revision < newest {
				return false
			}
		}
		return true
	})
}

// The number of leases that BenchmarkLeaseMemory stores, and the limit of their memory.
const (
	storedLeases = 100_000
	memoryBound  = int64(200 << 20)
)

// BenchmarkLeaseMemory measures the memory of "pglatch serve locks" on SQLite when it holds
// 100,000 leases that 64 clients acquired: the resident memory then, and its peak.
func BenchmarkLeaseMemory(b *testing.B) {
	for b.Loop() {
		url, pid := serveLocks(b)
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{url}})
		require.NoError(b, err)
		began := time.Now()
		const clients = 64
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for n := c; n < storedLeases; n += clients {
					name := fmt.Sprintf("tenant-%d/job-%d", n%100, n)
					_, err := client.Acquire(b.Context(), lease.AcquireRequest{Name: name, Holder: "worker-" + strconv.Itoa(c), TTL: time.Hour})
					if !assert.NoError(b, err) {
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(storedLeases/time.Since(began).Seconds(), "acquires/s")
		client.Close()
		resident, peak := gauge.Memory(strconv.Itoa(pid), "VmRSS"), gauge.Memory(strconv.Itoa(pid), "VmHWM")
		require.Positive(b, peak)
		b.ReportMetric(float64(resident)/(1<<20), "resident-MiB")
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		assert.Less(b, peak, memoryBound)
	}
	b.ReportMetric(0, "ns/op")
}

// serveLocks starts the program. It ends with the benchmark.
func serveLocks(b *testing.B) (url string, pid int) {
	b.Helper()
	dir := b.TempDir()
	binary := filepath.Join(dir, "pglatch")
	require.NoError(b, gobuild.Program(b.Context(), "../../../cmd/pglatch", binary))
	p := proctest.Start(b, proctest.Command(b, binary, "serve", "locks", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(dir, "locks.db")))
	b.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		assert.Zero(b, p.Wait())
	})
	return "http://" + p.Match(&p.Stderr, `msg=serving address=(\S+)`)[1], p.PID()
}
