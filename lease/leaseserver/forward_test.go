package leaseserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// newPeers are n servers of one store in memory. The first is active.
func newPeers(t *testing.T, n int, poll time.Duration) []servetest.Peer {
	t.Helper()
	store := leasetest.NewStore()
	all := make([]lease.Store, n)
	for i := range all {
		all[i] = store
	}
	return servetest.NewPeers(t, poll, all...)
}

func forwarded(t *testing.T, p servetest.Peer, result string) float64 {
	t.Helper()
	return servetest.Metric(t, p.Server, "lock_forwarded_total", `"`+result+`"`)
}

func TestWaitersAtAnyServerAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	servetest.RequireOneOrder(t, newPeers(t, 3, -1))
}

func TestServersThatDoNotKnowOfEachOtherHaveNoOrder(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	servetest.RequireNoOrder(t, store, store)
}

// Each request has the same answer at the active server, at one that forwards to it, and at one that
// cannot reach it.
func TestARequestHasTheSameAnswerWhicheverServerGetsIt(t *testing.T) {
	t.Parallel()
	tokens := []leaseserver.Token{{Secret: servetest.Token}, {Secret: tokenOfReader, Right: leaseserver.Read}}
	var log capture.Text
	store := leasetest.NewStore()
	var peers []servetest.Peer
	for range 3 {
		peers = append(peers, servetest.NewPeerOf(t, leaseserver.Config{
			Store: store, Tokens: tokens, MaxBody: 500, Rate: 1e6, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			TTLPolicies: []leaseserver.TTLPolicy{{Prefix: "short/", Max: time.Minute}}, Peers: leaseserver.Peers{Token: "secret-of-servers"},
		}))
	}
	servetest.Elect(t, peers, 0)
	peers[2].Election.Believe("http://127.0.0.1:1")
	servetest.AwaitMetric(t, peers[2].Server, "lock_server_forwards", 0)
	bearer := []string{"Authorization", "Bearer " + servetest.Token, "Pglatch-Request-Id", "r1"}
	for i, p := range peers {
		name := fmt.Sprintf("job %d/a%%b", i)
		path := "/v1/locks/" + strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")
		path = strings.ReplaceAll(path, " ", "%20")
		check := func(status int, method, target, body string, header ...string) answer {
			t.Helper()
			a := send(t, p.HTTP, method, target, body, header...)
			require.Equal(t, status, a.status, "server %d: %s: %s", i, target, a.body)
			return a
		}
		got := check(200, http.MethodPost, path+"/acquire", `{"owner_id":"a","ttl_ms":60000,"idempotency_key":"k"}`, bearer...)
		assert.Equal(t, []string{"r1"}, got.header["Pglatch-Request-Id"])
		assert.Equal(t, "application/json", got.header.Get("Content-Type"))
		assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
		var l struct {
			Lock  string `json:"lock"`
			ID    string `json:"lease_id"`
			Token uint64 `json:"fencing_token"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &l))
		assert.Equal(t, name, l.Lock)
		claim := fmt.Sprintf(`"owner_id":"a","lease_id":%q,"fencing_token":%d`, l.ID, l.Token)
		held := check(409, http.MethodPost, path+"/acquire?wait=20ms", `{"owner_id":"b","ttl_ms":60000}`, bearer...)
		assert.NotEmpty(t, held.header.Get("Retry-After"))
		check(200, http.MethodPost, path+"/renew", `{`+claim+`,"ttl_ms":60000}`, bearer...)
		check(200, http.MethodPost, path+"/adopt", fmt.Sprintf(`{"owner_id":"a","lease_id":%q}`, l.ID), bearer...)
		check(200, http.MethodPost, "/v1/batch", fmt.Sprintf(`{"operations":[{"renew":{"lock":%q,%s,"ttl_ms":60000}}]}`, name, claim), bearer...)
		seen := check(200, http.MethodGet, path, "", bearer...)
		assert.Contains(t, seen.body, l.ID, "an admin sees it")
		check(200, http.MethodGet, path+"?wait=20ms&index=1", "", bearer...)
		seen = check(200, http.MethodGet, path, "", "Authorization", "Bearer "+tokenOfReader)
		assert.NotContains(t, seen.body, l.ID)
		check(200, http.MethodGet, "/v1/locks?limit=1", "", bearer...)
		check(401, http.MethodGet, path, "")
		check(403, http.MethodPost, path+"/renew", `{`+claim+`,"ttl_ms":60000}`, "Authorization", "Bearer "+tokenOfReader)
		check(200, http.MethodPost, path+"/force-release", `{"reason":"gone","lease_id":"`+l.ID+`"}`, bearer...)
		check(409, http.MethodPost, path+"/renew", `{`+claim+`,"ttl_ms":60000}`, bearer...)
		check(200, http.MethodPost, path+"/release", `{`+claim+`}`, bearer...)
		check(400, http.MethodPost, path+"/acquire", `{"owner_id":"a","ttl_ms":60000,"TTL_MS":1}`, bearer...)
		check(400, http.MethodPost, path+"/acquire?wait=soon", `{"owner_id":"a","ttl_ms":60000}`, bearer...)
		check(422, http.MethodPost, path+"/acquire?wait=-1s", `{"owner_id":"a","ttl_ms":60000}`, bearer...)
		check(422, http.MethodGet, path+"?wait=-1s", "", bearer...)
		check(413, http.MethodPost, path+"/acquire", strings.Repeat(" ", 501), bearer...)
		check(415, http.MethodPost, path+"/acquire", `{}`, append(bearer, "Content-Type", "text/plain")...)
		check(422, http.MethodPost, "/v1/locks/short%2Fx/acquire", `{"owner_id":"a","ttl_ms":600000}`, bearer...)
		check(404, http.MethodPost, "/v1/locks/none/renew", `{`+claim+`,"ttl_ms":60000}`, bearer...)
		check(404, http.MethodGet, "/v1/nothing", "", bearer...)
		check(405, http.MethodGet, path+"/renew", "", bearer...)
		check(204, http.MethodGet, "/readyz", "")
	}
	assert.Zero(t, forwarded(t, peers[0], "answered"))
	assert.Positive(t, forwarded(t, peers[1], "answered"))
	assert.Zero(t, forwarded(t, peers[1], "failed"))
	assert.Zero(t, forwarded(t, peers[2], "answered"))
	assert.Equal(t, 3, strings.Count(log.String(), "lease_force_released"))
	assert.Contains(t, log.String(), "from=127.0.0.1:")
}

// acquires waits for a lock, and tells when it has it.
func acquires(t *testing.T, p servetest.Peer, r lease.AcquireRequest) <-chan lease.Lease {
	t.Helper()
	got := make(chan lease.Lease, 1)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	wg.Go(func() {
		l, err := p.Client.AcquireWait(t.Context(), r, servetest.Bound)
		assert.NoError(t, err, r.Holder)
		got <- l
	})
	return got
}

func TestWaitersMoveToTheServerThatBecomesActive(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 3, -1)
	held := acquire(t, peers[2].Client, servetest.Ask("job", "holder"))
	var waiting []<-chan lease.Lease
	for i, p := range peers { // one of each server
		waiting = append(waiting, acquires(t, p, servetest.Ask("job", fmt.Sprint(i))))
	}
	servetest.AwaitWaiters(t, peers[0].Server, 3)
	servetest.Elect(t, peers, 1)
	servetest.AwaitWaiters(t, peers[1].Server, 3)
	servetest.AwaitWaiters(t, peers[0].Server, 0)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	for range waiting {
		var l lease.Lease
		select {
		case l = <-waiting[0]:
		case l = <-waiting[1]:
		case l = <-waiting[2]:
		}
		require.NoError(t, peers[1].Client.Release(t.Context(), l.Claim))
	}
}

// The active server dies while requests wait there, and nobody is elected.
func TestWithoutAnActiveServerEachAnswersByItself(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 3, 20*time.Millisecond)
	held := acquire(t, peers[1].Client, servetest.Ask("job", "holder"))
	one, two := acquires(t, peers[1], servetest.Ask("job", "one")), acquires(t, peers[2], servetest.Ask("job", "two"))
	servetest.AwaitWaiters(t, peers[0].Server, 2)
	peers[0].HTTP.Listener.Close()
	peers[0].HTTP.CloseClientConnections()
	for _, p := range peers[1:] {
		servetest.AwaitWaiters(t, p.Server, 1)
	}
	require.NoError(t, peers[1].Client.Release(t.Context(), held.Claim))
	for range 2 {
		var l lease.Lease
		select {
		case l = <-one:
		case l = <-two:
		}
		require.NoError(t, peers[2].Client.Release(t.Context(), l.Claim))
	}
}

// A server that is stopped accepts connections, and answers nothing.
func TestASilentActiveServerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, 20*time.Millisecond)
	proxy, err := faultproxy.New(t.Context(), peers[0].HTTP.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(peers[0].HTTP.URL)
	require.NoError(t, err)
	peers[1].Election.Believe("")
	servetest.AwaitMetric(t, peers[1].Server, "lock_server_forwards", 0)
	peers[1].Election.Believe(through)
	servetest.AwaitMetric(t, peers[1].Server, "lock_server_forwards", 1)
	held := acquire(t, peers[0].Client, servetest.Ask("job", "holder"))
	waiting := acquires(t, peers[1], servetest.Ask("job", "waiter"))
	servetest.AwaitWaiters(t, peers[0].Server, 1)
	proxy.Set(faultproxy.Hold)
	servetest.AwaitWaiters(t, peers[1].Server, 1) // it waits here now
	servetest.AwaitWaiters(t, peers[0].Server, 0) // and the active server has noticed
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	l := <-waiting
	require.NoError(t, peers[1].Client.Release(t.Context(), l.Claim))
	proxy.Set(faultproxy.Pass)
	servetest.AwaitMetric(t, peers[1].Server, "lock_server_forwards", 1)
}

// A slow active server is not a dead one: its answer is waited for.
func TestASlowActiveServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	asked, may := make(chan struct{}), make(chan struct{})
	slow := &servetest.Spy{Store: store, Before: func() { close(asked); <-may }}
	peers := servetest.NewPeers(t, -1, slow, store)
	got := make(chan error)
	go func() {
		_, err := peers[1].Client.Acquire(t.Context(), servetest.Ask("job", "a"))
		got <- err
	}()
	<-asked
	_, err := peers[1].Client.Get(t.Context(), "other")
	require.ErrorIs(t, err, lease.ErrNotFound, "meanwhile it answers others")
	close(may)
	require.NoError(t, <-got)
	assert.Zero(t, forwarded(t, peers[1], "failed"))
}

// Each of two servers takes the other for the active one.
func TestARequestIsForwardedOnceAtMost(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, 20*time.Millisecond)
	peers[0].Election.Believe(peers[1].HTTP.URL)
	servetest.AwaitMetric(t, peers[0].Server, "lock_server_active", 0)
	for _, p := range peers {
		l := acquire(t, p.Client, servetest.Ask("job", "a"))
		require.NoError(t, p.Client.Release(t.Context(), l.Claim))
		a := send(t, p.HTTP, http.MethodGet, "/v1/locks/job", "", "Pglatch-Forwarded", "192.0.2.1:1")
		assert.Equal(t, http.StatusMisdirectedRequest, a.status, a.body)
	}
	held := acquire(t, peers[0].Client, servetest.Ask("job", "a"))
	waiting := acquires(t, peers[1], servetest.Ask("job", "b"))
	servetest.AwaitWaiters(t, peers[1].Server, 1)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	<-waiting
}

// What is at an old address is another program, nobody, this server, or no address at all.
func TestAnOldAddressOfTheActiveServerIsNotUsed(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	stranger.Config.Protocols = new(http.Protocols)
	stranger.Config.Protocols.SetUnencryptedHTTP2(true)
	stranger.Start()
	t.Cleanup(stranger.Close)
	var log capture.Text
	p := servetest.NewPeerOf(t, leaseserver.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	other := servetest.NewPeerOf(t, leaseserver.Config{}) // not active
	for _, url := range []string{stranger.URL, "http://127.0.0.1:1", other.HTTP.URL, "ftp://127.0.0.1", "http://user@127.0.0.1:1", ":"} {
		p.Election.Believe(url)
		l, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "a"))
		require.NoError(t, err, url)
		require.NoError(t, p.Client.Release(t.Context(), l.Claim), url)
		assert.Zero(t, forwarded(t, p, "answered"), url)
	}
	assert.NotContains(t, log.String(), "to="+stranger.URL)
}

// At the old address of the active server is the active server of another store by now. Where the election does not
// say which process was elected, that grants a lock that is held.
func TestAServerOfAnotherStoreAtTheOldAddressGetsNoRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elected, there string
		forwards       float64
	}{
		"another process":             {"first", "second", 0},
		"the process":                 {"first", "first", 1},
		"control: no process elected": {"", "second", 1},
		"an election of another kind": {"first", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log capture.Text
			p := servetest.NewPeerOf(t, leaseserver.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			acquire(t, p.Client, servetest.Ask("job", "a"))
			other := servetest.NewPeerOf(t, leaseserver.Config{})
			other.Election.BelieveProcess(other.HTTP.URL, c.there)
			servetest.AwaitMetric(t, other.Server, "lock_server_active", 1)
			p.Election.BelieveProcess(other.HTTP.URL, c.elected)
			if c.forwards > 0 {
				servetest.AwaitMetric(t, p.Server, "lock_server_forwards", 1)
			} else {
				await.Until(t, servetest.Bound, func() bool { return strings.Contains(log.String(), "server_unreachable") })
			}
			_, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "b"))
			assert.Equal(t, c.forwards == 0, errors.Is(err, lease.ErrHeld), err)
			assert.Equal(t, c.forwards, forwarded(t, p, "answered"))
		})
	}
}

// The process is asked with each request too: it can have changed since the last probe.
func TestARequestForAnotherProcessIsRefused(t *testing.T) {
	t.Parallel()
	p := servetest.NewPeerOf(t, leaseserver.Config{})
	p.Election.BelieveProcess(p.HTTP.URL, "second")
	servetest.AwaitMetric(t, p.Server, "lock_server_active", 1)
	const path, body = "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":60000}`
	a := send(t, p.HTTP, http.MethodPost, path, body, "Pglatch-Forwarded", "192.0.2.1:1", "Pglatch-Active-Process", "first")
	assert.Equal(t, http.StatusMisdirectedRequest, a.status, a.body)
	a = send(t, p.HTTP, http.MethodPost, path, body, "Pglatch-Forwarded", "192.0.2.1:1", "Pglatch-Active-Process", "second")
	assert.Equal(t, http.StatusOK, a.status, a.body)
}

func TestServersWithDifferentTokensDoNotForwardToEachOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		token    string
		forwards float64
	}{"another": {"another-secret-of-servers", 0}, "none": {"", 0}, "the same": {"the-secret-of-servers", 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			active := servetest.NewPeerOf(t, leaseserver.Config{Store: store, Peers: leaseserver.Peers{Token: "the-secret-of-servers"}})
			active.Election.Believe(active.HTTP.URL)
			servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
			var log capture.Text
			other := servetest.NewPeerOf(t, leaseserver.Config{Store: store, Peers: leaseserver.Peers{Token: c.token}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			other.Election.Believe(active.HTTP.URL)
			if c.forwards > 0 {
				servetest.AwaitMetric(t, other.Server, "lock_server_forwards", 1)
			} else {
				await.Until(t, servetest.Bound, func() bool { return strings.Contains(log.String(), "does not know this server") })
			}
			acquire(t, other.Client, servetest.Ask("job", "a"))
			assert.Equal(t, c.forwards, forwarded(t, other, "answered"))
		})
	}
}

// Whoever can make the election name another server gets no secret: neither that of the servers nor a client's.
func TestAServerThatDoesNotProveItselfReceivesNoToken(t *testing.T) {
	t.Parallel()
	const secret = "the-secret-of-servers"
	store := leasetest.NewStore()
	config := leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: servetest.Token}}, Peers: leaseserver.Peers{Token: secret}}
	active := servetest.NewPeerOf(t, config)
	active.Election.Believe(active.HTTP.URL)
	servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
	var mu sync.Mutex
	var seen strings.Builder
	asked := make(chan struct{}, 1000)
	liar := func(answer http.HandlerFunc) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			_ = r.Header.Write(&seen)
			mu.Unlock()
			answer(w, r)
			asked <- struct{}{}
		}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(server.Close)
		return server.URL
	}
	other := servetest.NewPeerOf(t, config)
	for name, answer := range map[string]http.HandlerFunc{
		"no proof": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"the proof of the active server, passed on": func(w http.ResponseWriter, r *http.Request) {
			to, err := http.NewRequestWithContext(r.Context(), http.MethodGet, active.HTTP.URL+r.URL.Path, http.NoBody)
			if !assert.NoError(t, err) {
				return
			}
			to.Header = r.Header.Clone()
			said, err := http.DefaultClient.Do(to)
			if !assert.NoError(t, err) {
				return
			}
			defer said.Body.Close()
			w.Header().Set("Pglatch-Proof", said.Header.Get("Pglatch-Proof"))
			w.WriteHeader(said.StatusCode)
		},
	} {
		other.Election.Believe(liar(answer))
		for range 2 {
			select {
			case <-asked:
			case <-time.After(servetest.Bound):
				require.Fail(t, "it was not asked", name)
			}
		}
		a := send(t, other.HTTP, http.MethodGet, "/v1/locks/job", "", "Authorization", "Bearer "+servetest.Token)
		assert.Equal(t, http.StatusNotFound, a.status, "%s: it answers by itself: %s", name, a.body)
	}
	mu.Lock()
	assert.Contains(t, seen.String(), "Pglatch-Challenge")
	assert.NotContains(t, seen.String(), secret)
	assert.NotContains(t, seen.String(), servetest.Token)
	mu.Unlock()
	other.Election.Believe(active.HTTP.URL)
	servetest.AwaitMetric(t, other.Server, "lock_server_forwards", 1) // the control
}

// The wait goes on at the active server for longer than this server may take to shut down.
func TestAWaitThatIsForwardedEndsWhenTheServerShutsDown(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	acquire(t, peers[0].Client, servetest.Ask("job", "a"))
	answered := make(chan answer, 1)
	go func() {
		answered <- send(t, peers[1].HTTP, http.MethodPost, "/v1/locks/job/acquire?wait=1h", `{"owner_id":"b","ttl_ms":60000}`)
	}()
	servetest.AwaitMetric(t, peers[0].Server, "lock_waiters", 1)
	require.NoError(t, peers[1].Server.Shutdown(t.Context()))
	select {
	case a := <-answered:
		assert.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	case <-time.After(servetest.Bound):
		require.Fail(t, "it waits on")
	}
	servetest.AwaitMetric(t, peers[0].Server, "lock_waiters", 0)
}

func TestAHalfSentBodyIsNotForwarded(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	spy := &servetest.Spy{Store: store}
	peers := servetest.NewPeers(t, -1, spy, store)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", peers[1].HTTP.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST /v1/locks/job/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"owner_id\":\"a\",")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	assert.Zero(t, spy.Acquires.Load())
	assert.Zero(t, forwarded(t, peers[1], "answered"))
}

// The active server dies after it granted a lease, and before its answer. The client resends its key,
// and gets that lease.
func TestAGrantThatTheActiveServerDidNotDeliverBelongsToWhoResendsItsKey(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	var peers []servetest.Peer
	var once atomic.Bool
	dying := &servetest.Spy{Store: store}
	dying.After = func() {
		if once.CompareAndSwap(false, true) {
			peers[0].HTTP.Listener.Close()
			peers[0].HTTP.CloseClientConnections()
		}
	}
	peers = servetest.NewPeers(t, 20*time.Millisecond, dying, store)
	client := servetest.Client(t, peers[1].HTTP, leasehttp.ClientConfig{})
	r := servetest.Ask("job", "a")
	r.IdempotencyKey = "k"
	l, err := client.AcquireWait(t.Context(), r, servetest.Bound)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token, "it was granted once")
	assert.Equal(t, 1.0, forwarded(t, peers[1], "failed"))
}

// What the active server did before it died cannot be known: a server that repeated the request could
// do it twice. A read is repeated.
func TestARequestWithAnUnknownOutcomeIsNotRepeatedByTheServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, target, body string
		status               int
	}{
		"acquire":       {http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":60000,"idempotency_key":"k"}`, http.StatusServiceUnavailable},
		"force-release": {http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x"}`, http.StatusServiceUnavailable},
		"get":           {http.MethodGet, "/v1/locks/job", "", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			var peers []servetest.Peer
			tokens := []leaseserver.Token{{Secret: servetest.Token}}
			dying := &dyingStore{Store: store, die: func() {
				peers[0].HTTP.Listener.Close()
				peers[0].HTTP.CloseClientConnections()
			}}
			spy := &servetest.Spy{Store: store}
			peers = []servetest.Peer{
				servetest.NewPeerOf(t, leaseserver.Config{Store: dying, Tokens: tokens}), servetest.NewPeerOf(t, leaseserver.Config{Store: spy, Tokens: tokens}),
			}
			servetest.Elect(t, peers, 0)
			a := send(t, peers[1].HTTP, c.method, c.target, c.body, "Authorization", "Bearer "+servetest.Token)
			assert.Equal(t, c.status, a.status, a.body)
			if c.status == http.StatusServiceUnavailable {
				assert.Contains(t, a.body, "store-unavailable")
			}
			assert.Zero(t, spy.Acquires.Load())
		})
	}
}

// A dyingStore lets its server die before it answers.
type dyingStore struct {
	*leasetest.Store
	die func()
}

func (s *dyingStore) Get(ctx context.Context, name string) (lease.Record, error) {
	s.die()
	return s.Store.Get(ctx, name)
}

func (s *dyingStore) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.die()
	return s.Store.Acquire(ctx, r)
}

// A lease counts from when its client sent the request: the time at both servers counts.
func TestTheTimeThatARequestWaitedAtBothServersIsCounted(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	active := peers[0].HTTP.URL
	peers[1].Election.Believe("") // nobody is active
	servetest.AwaitMetric(t, peers[1].Server, "lock_server_forwards", 0)
	held := acquire(t, peers[0].Client, servetest.Ask("job", "holder"))
	answered := make(chan answer)
	began := time.Now()
	go func() {
		answered <- send(t, peers[1].HTTP, http.MethodPost, "/v1/locks/job/acquire?wait=20s", `{"owner_id":"a","ttl_ms":60000}`)
	}()
	servetest.AwaitWaiters(t, peers[1].Server, 1)
	here := time.Now()
	<-time.After(20 * aMoment)
	local := time.Since(here)
	peers[1].Election.Believe(active)
	servetest.AwaitWaiters(t, peers[0].Server, 1)
	there := time.Now()
	<-time.After(20 * aMoment)
	elsewhere := time.Since(there)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	a := <-answered
	require.Equal(t, http.StatusOK, a.status, a.body)
	var l struct {
		Waited int64 `json:"waited_ms"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &l))
	assert.GreaterOrEqual(t, l.Waited, (local+elsewhere).Milliseconds()-2)
	assert.LessOrEqual(t, l.Waited, time.Since(began).Milliseconds())
}

func TestManyWaitsAreFewConnectionsBetweenServers(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	active := servetest.NewPeer(t, store, -1)
	var conns atomic.Int64
	front := httptest.NewUnstartedServer(active.Server.Handler())
	active.Server.Configure(front.Config)
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	front.Start()
	t.Cleanup(front.Close)
	active.Election.Believe(active.HTTP.URL)
	servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
	other := servetest.NewPeer(t, store, -1)
	other.Election.Believe(front.URL)
	servetest.AwaitMetric(t, other.Server, "lock_server_forwards", 1)
	held := acquire(t, active.Client, servetest.Ask("job", "holder"))
	const waits = 200
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range waits {
		wg.Go(func() {
			for ctx.Err() == nil { // a machine that stands still for seconds ends a connection, and its requests
				_, _ = post(ctx, other.HTTP, "/v1/locks/job/acquire?wait=50s", `{"owner_id":"a","ttl_ms":60000}`)
			}
		})
	}
	servetest.AwaitWaiters(t, active.Server, waits)
	assert.Less(t, conns.Load(), int64(waits/10), "connections")
	cancel()
	wg.Wait()
	servetest.AwaitWaiters(t, active.Server, 0) // they hung up
	require.NoError(t, active.Client.Release(t.Context(), held.Claim))
}

// HTTP/2 refuses to send headers above the active server's limit. That is the client's mistake: the server continues to
// forward other requests.
func TestARequestWhoseHeadersCannotBeForwardedIsRefusedAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers, size int
		status        int
	}{
		"one large header":           {1, 17 << 10, http.StatusBadRequest},
		"many small headers":         {600, 1, http.StatusBadRequest},
		"control: one that fits":     {1, 14 << 10, http.StatusOK},
		"control: as many as do fit": {300, 1, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			active := servetest.NewPeer(t, store, -1)
			front := httptest.NewUnstartedServer(active.Server.Handler())
			active.Server.Configure(front.Config)
			front.Config.MaxHeaderBytes = 16 << 10 // as Serve has it
			front.Start()
			t.Cleanup(front.Close)
			active.Election.Believe(active.HTTP.URL)
			servetest.AwaitMetric(t, active.Server, "lock_server_active", 1)
			other := servetest.NewPeer(t, store, -1)
			other.Election.Believe(front.URL)
			servetest.AwaitMetric(t, other.Server, "lock_server_forwards", 1)
			var header []string
			for i := range c.headers {
				header = append(header, fmt.Sprintf("X-%d", i), strings.Repeat("x", c.size))
			}
			for _, query := range []string{"", "?wait=1s"} {
				a := send(t, other.HTTP, http.MethodPost, "/v1/locks/job/acquire"+query, `{"owner_id":"a","ttl_ms":60000,"idempotency_key":"k"}`, header...)
				assert.Equal(t, c.status, a.status, a.body)
			}
			acquire(t, other.Client, servetest.Ask("other", "a"))
			assert.Zero(t, forwarded(t, other, "failed"))
			assert.Positive(t, forwarded(t, other, "answered"))
		})
	}
}

// A slowStore takes a time for each operation.
type slowStore struct {
	*leasetest.Store
	takes time.Duration
}

func (s slowStore) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	<-time.After(s.takes)
	return s.Store.Acquire(ctx, r)
}

func (s slowStore) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	<-time.After(s.takes)
	return s.Store.Renew(ctx, r)
}

func (s slowStore) Release(ctx context.Context, c lease.Claim) error {
	<-time.After(s.takes)
	return s.Store.Release(ctx, c)
}

func (s slowStore) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	<-time.After(s.takes)
	return s.Store.List(ctx, r)
}

// A share costs up to five operations of the store, each of which can take StoreTimeout.
func TestAShareOfASlowStoreIsWaitedFor(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	const timeout = 1500 * time.Millisecond // far more than an operation takes, and less than all take together
	active := servetest.NewPeerOf(t, leaseserver.Config{Store: slowStore{store, timeout / 2}, StoreTimeout: timeout})
	other := servetest.NewPeerOf(t, leaseserver.Config{Store: store, StoreTimeout: timeout})
	servetest.Elect(t, []servetest.Peer{active, other}, 0)
	a := send(t, other.HTTP, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":60000,"slots":1,"idempotency_key":"k"}`)
	assert.Equal(t, http.StatusOK, a.status, a.body)
	assert.Zero(t, forwarded(t, other, "failed"))
}
