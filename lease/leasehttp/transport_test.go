package leasehttp_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// proxied is a client behind a proxy that spoils connections.
func proxied(t *testing.T, store lease.Store, c leasehttp.ClientConfig) (*leasehttp.Client, *faultproxy.Proxy) {
	t.Helper()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	proxy, err := faultproxy.New(t.Context(), h.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(h.URL)
	require.NoError(t, err)
	c.BaseURLs = []string{through}
	return servetest.Client(t, nil, c), proxy
}

func TestConnectionsThatBrokeAreReplaced(t *testing.T) {
	t.Parallel()
	cl, proxy := proxied(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	for range 3 {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := cl.Acquire(t.Context(), servetest.Ask(fmt.Sprint(i), "a"))
				if assert.NoError(t, err) {
					assert.NoError(t, cl.Release(t.Context(), l.Claim))
				}
			})
		}
		wg.Wait()
		proxy.Reset()
	}
}

func TestAnAnswerLostOnTheWireIsAskedForAgain(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore()}
	cl, proxy := proxied(t, store, leasehttp.ClientConfig{})
	held := make(chan struct{})
	store.After = sync.OnceFunc(func() {
		proxy.Set(faultproxy.HoldToClient)
		close(held)
	})
	done := make(chan lease.Lease, 1)
	go func() {
		l, err := cl.Acquire(context.WithoutCancel(t.Context()), servetest.Ask("job", "a"))
		assert.NoError(t, err)
		done <- l
	}()
	<-held
	proxy.Reset()
	proxy.Set(faultproxy.Pass)
	assert.Equal(t, uint64(1), (<-done).Token)
}

func TestASlowServerIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	cl, proxy := proxied(t, leasetest.NewStore(), leasehttp.ClientConfig{Timeout: 20 * time.Millisecond, Resends: 1})
	proxy.Set(faultproxy.Hold)
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "no answer in time")
	proxy.Set(faultproxy.Pass)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cl.Acquire(ctx, servetest.Ask("job", "a"))
	require.ErrorIs(t, err, context.Canceled)
}

// The way is dead that all connections went which are open.
func TestASendingThatIsNotAnsweredInTimeLeavesAllConnections(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS: ", secure), func(t *testing.T) {
			t.Parallel()
			const open = 4
			server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
			require.NoError(t, err)
			var opened sync.WaitGroup // at one time
			opened.Add(open)
			var gets atomic.Int32
			var dead sync.Map // connections that carry nothing any more
			end := make(chan struct{})
			h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					if gets.Add(1) <= open {
						opened.Done()
					}
					opened.Wait()
					dead.Store(r.RemoteAddr, true)
				} else if _, is := dead.Load(r.RemoteAddr); is {
					<-end
				}
				server.Handler().ServeHTTP(w, r)
			}))
			t.Cleanup(h.Close)
			t.Cleanup(func() { close(end) })
			config := leasehttp.ClientConfig{Timeout: 5 * time.Second, Resends: 1}
			if secure {
				h.EnableHTTP2 = true
				h.StartTLS()
				config.TLS = servetest.Trust(h)
			} else {
				h.Start()
			}
			cl := servetest.Client(t, h, config)
			var all sync.WaitGroup
			for range open {
				all.Go(func() {
					_, err := cl.Get(t.Context(), "job")
					assert.ErrorIs(t, err, lease.ErrNotFound)
				})
			}
			all.Wait()
			_, err = cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			require.NoError(t, err, "the next sending goes another way")
		})
	}
}

func TestAnswersOfSomethingElseAreUnknownOutcomes(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"a page":        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a bad gateway": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{"))
		},
		"another lock": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"lock":"other"}`))
		},
		"an odd problem": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(`{"type":"about:blank"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(handler)
			t.Cleanup(h.Close)
			_, err := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1}).Acquire(t.Context(), servetest.Ask("job", "a"))
			require.Error(t, err)
			for _, known := range []error{lease.ErrHeld, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrInvalid, lease.ErrBusy} {
				require.NotErrorIs(t, err, known)
			}
		})
	}
}

// FuzzAnswers gives a client anything for an answer.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 80\r\n\r\n{\"type\":\"https://github.com/pglatch/pglatch/problems/lock-held\",\"status\":\"x\"}..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write(data)
			_ = conn.Close()
		}()
		cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{"http://" + listener.Addr().String()}, Resends: -1, Timeout: time.Second})
		if l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a")); err == nil {
			require.Equal(t, "job", l.Name)
		}
		_ = listener.Close()
		<-served
	})
}
