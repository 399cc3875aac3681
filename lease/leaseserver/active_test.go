package leaseserver_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A leavingProxy stands in front of a server. It relays HTTP/2 until it leaves.
type leavingProxy struct {
	net.Listener
	leaves atomic.Bool // with the next request
	passes bool        // the request on to the server, when it leaves, but no answer back
	left   atomic.Bool
}

// The types of frames that matter here. A frame begins with its length in three bytes, its type, its flags and its stream:
// RFC 9113, section 4.1.
const (
	data    = 0
	headers = 1
	goAway  = 7
)

// serve relays connections to a server until the proxy leaves.
func (p *leavingProxy) serve(to string) {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			return
		}
		var writing sync.Mutex
		go p.relay(server, client, &writing, false)
		go func() {
			if _, err := io.CopyN(server, client, 24); err == nil { // the preface
				p.relay(client, server, &writing, true)
			}
		}()
	}
}

// relay copies frames until one of the connections ends or the proxy leaves. writing is held while the client is written to.
func (p *leavingProxy) relay(from, to net.Conn, writing *sync.Mutex, requests bool) {
	defer from.Close()
	defer to.Close()
	var last uint32
	leaving := false // with the request whose headers came last
	for {
		frame := make([]byte, 9, 64)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		size, kind, stream := int(frame[0])<<16|int(frame[1])<<8|int(frame[2]), frame[3], binary.BigEndian.Uint32(frame[5:])
		frame = append(frame, make([]byte, size)...)
		if _, err := io.ReadFull(from, frame[9:]); err != nil {
			return
		}
		if requests && kind == headers {
			leaving = p.leaves.Load()
		}
		switch {
		case leaving && p.passes && kind == data:
			p.left.Store(true)
			_ = p.Close()
			_ = from.Close()
			_, _ = to.Write(frame)
			return
		case leaving && !p.passes:
			p.left.Store(true)
			_ = p.Close()
			writing.Lock()
			_, _ = from.Write(binary.BigEndian.AppendUint32(append([]byte{0, 0, 8, goAway, 0, 0, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, last)...), 0))
			writing.Unlock()
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if requests && kind == headers {
			last = stream
		}
		if !requests {
			writing.Lock()
		}
		_, err := to.Write(frame)
		if !requests {
			writing.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// An active server that shuts down says which requests it has not looked at (GOAWAY). If it cannot be reached again, nothing was done,
// and the server that forwards answers by itself.
func TestARequestThatAServerDidNotLookAtWhenItLeftIsAnsweredHere(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]bool{"not looked at": false, "control: it left without a word": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peers := newPeers(t, 2, -1)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			proxy := &leavingProxy{Listener: listener, passes: passes}
			t.Cleanup(func() { _ = proxy.Close() })
			go proxy.serve(peers[0].HTTP.Listener.Addr().String())
			p := peers[1]
			p.Election.Believe("http://" + listener.Addr().String())
			client := servetest.Client(t, p.HTTP, leasehttp.ClientConfig{Resends: -1})
			servetest.AwaitMetric(t, p.Server, "lock_server_forwards", 1)
			for forwarded(t, p, "answered") == 0 { // by way of the proxy
				l := acquire(t, client, servetest.Ask("job", "a"))
				require.NoError(t, client.Release(t.Context(), l.Claim))
			}
			proxy.leaves.Store(true)
			name := ""
			for i := 0; err == nil && !proxy.left.Load(); i++ { // a server that answers no probe for seconds gets no request
				name = fmt.Sprint("job-", i)
				_, err = client.Acquire(t.Context(), servetest.Ask(name, "b"))
			}
			if passes {
				require.ErrorContains(t, err, "outcome unknown")
				return
			}
			require.NoError(t, err)
			held := recordOf(t, p.Client, name)
			assert.Equal(t, "b", held.Holder)
		})
	}
}

// besideAnother returns a server that forwards to the active one through a handler, which makes that a server of another version.
func besideAnother(t *testing.T, version func(active http.Handler) http.Handler) (forwards servetest.Peer) {
	t.Helper()
	peers := newPeers(t, 2, -1)
	active := version(peers[0].Server.Handler())
	var asked atomic.Bool
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/locks/job" {
			asked.Store(true)
		}
		active.ServeHTTP(w, r)
	}))
	peers[0].Server.Configure(other.Config)
	other.Start()
	t.Cleanup(other.Close)
	peers[1].Election.Believe(other.URL)
	await.Until(t, servetest.Bound, func() bool { // until then the one behind it may be asked
		send(t, peers[1].HTTP, http.MethodGet, "/v1/locks/job", "")
		return asked.Load()
	})
	return peers[1]
}

// The next version knows a field more in requests and answers, a header and a route. A server that forwards to it hides none of them but
// the route.
func TestAServerForwardsWhatOnlyTheNextVersionKnows(t *testing.T) {
	t.Parallel()
	p := besideAnother(t, func(active http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			body = bytes.Replace(body, []byte(`"next_option":1,`), nil, 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			recorded := httptest.NewRecorder()
			active.ServeHTTP(recorded, r)
			maps.Copy(w.Header(), recorded.Header())
			w.Header().Set("Pglatch-Next", "1")
			w.WriteHeader(recorded.Code)
			if recorded.Code != http.StatusNoContent {
				_, _ = io.WriteString(w, strings.Replace(recorded.Body.String(), "{", `{"next_field":1,`, 1))
			}
		})
	})
	const path = "/v1/locks/new/acquire"
	a := send(t, p.HTTP, http.MethodPost, path, `{"next_option":1,"owner_id":"a","ttl_ms":60000}`)
	require.Equal(t, 200, a.status, a.body)
	assert.Equal(t, "1", a.header.Get("Pglatch-Next"))
	assert.Contains(t, a.body, `"next_field":1`)
	a = send(t, p.HTTP, http.MethodPost, path, `{"next_option":1,"owner_id":"b","ttl_ms":60000}`)
	require.Equal(t, 409, a.status)
	assert.Contains(t, a.body, `"next_field":1`)
	assert.Equal(t, 404, send(t, p.HTTP, http.MethodGet, "/v1/next", "").status)
	l, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err, "a client of this version does not need to know them")
	require.NoError(t, p.Client.Release(t.Context(), l.Claim))
}

// An earlier version has no batches. The calls of a client that asks it through a server of this version are answered all the same.
func TestAClientGoesOnWhileTheActiveServerIsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	var batches atomic.Int64
	p := besideAnother(t, func(active http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/batch" {
				active.ServeHTTP(w, r)
				return
			}
			batches.Add(1)
			w.Header().Set("Content-Type", problem.MediaType)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"type":"%sno-such-route","title":"No such route","status":404}`, problem.TypeBase)
		})
	})
	for round := 0; batches.Load() == 0 && round < 100; round++ {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				l, err := p.Client.Acquire(t.Context(), servetest.Ask(fmt.Sprintf("job %d %d", round, i), "a"))
				if assert.NoError(t, err) {
					assert.NoError(t, p.Client.Release(t.Context(), l.Claim))
				}
			})
		}
		wg.Wait()
	}
	assert.Positive(t, batches.Load())
	assert.Zero(t, forwarded(t, p, "failed"))
}

// Many waiters of a server that forwards move at once: to the next active server, or back to their own one
// when the active server dies. Each of them has its turn, and no error reaches it.
//
//nolint:paralleltest // beside other tests it takes longer than a server may be silent
func TestManyWaitersMoveAtOnce(t *testing.T) {
	waits := soak.Size(t, 200, 2000)
	for name, move := range map[string]func(t *testing.T, peers []servetest.Peer) (to int){
		"to the next active server": func(t *testing.T, peers []servetest.Peer) int {
			t.Helper()
			servetest.Elect(t, peers, 1)
			return 1
		},
		"when the active server dies": func(t *testing.T, peers []servetest.Peer) int {
			t.Helper()
			peers[0].HTTP.Listener.Close()
			peers[0].HTTP.CloseClientConnections()
			return 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			peers := newPeers(t, 3, 0)
			held := acquire(t, peers[2].Client, servetest.Ask("job", "holder"))
			client := servetest.Client(t, peers[2].HTTP, leasehttp.ClientConfig{})
			var wg sync.WaitGroup
			t.Cleanup(wg.Wait)
			began := time.Now()
			for i := range waits {
				wg.Go(func() {
					l, err := client.AcquireWait(t.Context(), servetest.Ask("job", strconv.Itoa(i)), time.Minute)
					if assert.NoError(t, err) {
						assert.NoError(t, client.Release(t.Context(), l.Claim))
					}
				})
			}
			servetest.AwaitWaiters(t, peers[0].Server, waits)
			wait := time.Since(began)
			began = time.Now()
			to := move(t, peers)
			servetest.AwaitWaiters(t, peers[to].Server, waits)
			moved := time.Since(began)
			began = time.Now()
			require.NoError(t, client.Release(t.Context(), held.Claim))
			wg.Wait()
			t.Logf("%d waiters arrived in %v, moved in %v, and had their turns in %v", waits, wait, moved, time.Since(began))
		})
	}
}
