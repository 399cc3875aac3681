package leasehttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// answering is a server that answers each request in the same way, and counts them.
func answering(t *testing.T, status int, mediaType, body string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func problemOf(typ string) string { return `{"type":"` + typ + `","title":"x","field":"TTL"}` }

func TestAClientGoesOnWithTheNextServerOnlyIfItCanKnowBetter(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status          int
		mediaType, body string
		moves           bool
	}{
		"a proxy without a server":  {502, "text/html", "<p>bad gateway", true},
		"a proxy without servers":   {503, "text/plain", "no upstream", true},
		"a proxy that waited":       {504, "text/plain", "", true},
		"another server":            {404, "text/html", "", true},
		"half an answer":            {200, wire.JSONType, `{"lock":`, true},
		"a store that is away":      {503, problem, problemOf(wire.TypeUnavailable), true},
		"a store that is not ready": {503, problem, problemOf(wire.TypeNotReady), true},
		"a server that ends":        {503, problem, problemOf(wire.TypeBusy), true},
		"a panic":                   {500, problem, problemOf(wire.TypeInternal), true},
		"a lock that is held":       {409, problem, problemOf(wire.TypeHeld), false},
		"a bad request":             {400, problem, problemOf(wire.TypeInvalid), false},
		"no right":                  {403, problem, problemOf(wire.TypeForbidden), false},
		"no token":                  {401, problem, problemOf(wire.TypeUnauthorized), false},
		"too many requests":         {429, problem, problemOf(wire.TypeRateLimited), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, good := servetest.Serve(t, leaseserver.Config{})
			bad, asked := answering(t, c.status, c.mediaType, c.body)
			cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{bad, good.URL}})
			_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			assert.Equal(t, c.moves, err == nil, "%v", err)
			_, err = cl.Acquire(t.Context(), servetest.Ask("another", "a"))
			assert.Equal(t, c.moves, err == nil, "%v", err)
			if c.moves {
				assert.Equal(t, int64(1), asked.Load(), "it stays where it got an answer")
			}
		})
	}
}

func TestSendingsAreBoundedWhenNoServerAnswers(t *testing.T) {
	t.Parallel()
	var urls []string
	var all []*atomic.Int64
	for range 5 {
		url, asked := answering(t, 502, "text/plain", "")
		urls, all = append(urls, url), append(all, asked)
	}
	for resends, want := range map[int]int64{-1: 1, 0: 5, 9: 10} { // never, the default is less than the servers, twice each
		cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: urls, Resends: resends})
		_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
		require.ErrorContains(t, err, "outcome unknown")
		sum := int64(0)
		for _, asked := range all {
			sum += asked.Swap(0)
		}
		assert.Equal(t, want, sum, resends)
	}
}

func TestWithoutResendsTheNextRequestGoesToTheNextServer(t *testing.T) {
	t.Parallel()
	_, good := servetest.Serve(t, leaseserver.Config{})
	bad, asked := answering(t, 502, "text/plain", "")
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{bad, good.URL}, Resends: -1})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	acquire(t, cl, servetest.Ask("job", "a"))
	assert.Equal(t, int64(1), asked.Load())
}

// nobody is an address where nobody listens until the end of the test: it is that of the client's side of a connection.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return "http://" + conn.LocalAddr().String()
}

func TestWhatWasNotSentIsNotOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	at := nobody(t)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{at}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	claim := lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 1}
	for request, send := range map[string]func(context.Context) error{
		"acquire job": func(ctx context.Context) error { _, err := client.Acquire(ctx, servetest.Ask("job", "a")); return err },
		"renew job": func(ctx context.Context) error {
			_, err := client.Renew(ctx, lease.RenewRequest{Claim: claim, TTL: time.Minute})
			return err
		},
		"release job": func(ctx context.Context) error { return client.Release(ctx, claim) },
		"get job":     func(ctx context.Context) error { _, err := client.Get(ctx, "job"); return err },
	} {
		err := send(t.Context())
		require.ErrorIs(t, err, leasehttp.ErrUnavailable, request)
		require.ErrorIs(t, err, lease.ErrBusy, request)
		require.ErrorContains(t, err, request+": no lock server answers at "+at)
		require.ErrorContains(t, err, "start one: pglatch serve locks")
		assert.NotContains(t, err.Error(), "unknown")
	}
	_, err = client.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{MaxAttempts: 3})
	require.ErrorIs(t, err, leasehttp.ErrUnavailable)
	assert.Equal(t, 1, strings.Count(log.String(), "no lock server answers: trying again"), "it is logged once")
}

// The control: what was sent, and not answered, can have been carried out, unless it only reads.
func TestALostAnswerIsOfUnknownOutcomeUnlessItWasOfARead(t *testing.T) {
	t.Parallel()
	client, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	transport.gone.Store(true)
	_, err := client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "acquire job: outcome unknown")
	require.NotErrorIs(t, err, leasehttp.ErrUnavailable)
	_, err = client.Get(t.Context(), "job")
	require.ErrorIs(t, err, leasehttp.ErrUnavailable)
	assert.NotContains(t, err.Error(), "unknown")
	lost, _ := answering(t, 502, "text/plain", "")
	client = servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{lost, nobody(t)}, Resends: 1})
	_, err = client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "acquire job: outcome unknown", "the first server may have carried it out")
}

// A server that cuts waits short is not asked without a pause.
func TestAServerWithAShortMaxWaitIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	_, h, client := served(t, leaseserver.Config{MaxWait: time.Millisecond})
	acquire(t, client, lease.AcquireRequest{Name: "job", Holder: "a", TTL: servetest.Long})
	requests := &counting{}
	asking := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: requests.client()})
	_, err := asking.AcquireWithRetry(t.Context(), "job", "b", leasehttp.AcquireOptions{MaxWait: 2 * time.Second})
	require.ErrorIs(t, err, lease.ErrHeld)
	assert.Less(t, requests.sent.Load(), int64(12), "once in half a second to a second and a half")
}

// counting counts requests.
type counting struct{ sent atomic.Int64 }

func (c *counting) client() *http.Client { return &http.Client{Transport: c} }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

// A refusal of a second sending says nothing of the first, whose lease was granted and whose
// answer was lost: a policy got narrower between them, or the next server is of another version.
func TestARefusalOfASecondSendingIsNotTakenForTheAnswerToTheFirst(t *testing.T) {
	t.Parallel()
	acquires := map[string]func(*leasehttp.Client) error{
		"one request": func(cl *leasehttp.Client) error {
			_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			return err
		},
		"several requests": func(cl *leasehttp.Client) error {
			_, err := cl.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{TTL: servetest.Long})
			return err
		},
	}
	for name, acquire := range acquires {
		for _, lost := range []int{1, 0} { // the control: nothing was granted
			store := leasetest.NewStore()
			s, h := servetest.Serve(t, leaseserver.Config{Store: store})
			narrow := func() {
				assert.NoError(t, s.SetTTLPolicies([]leaseserver.TTLPolicy{{Max: servetest.Long / 2}}))
			}
			transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: lost, then: narrow}
			cl := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: &http.Client{Transport: transport}})
			if lost == 0 {
				narrow()
				require.ErrorIs(t, acquire(cl), lease.ErrInvalid, name)
				continue
			}
			err := acquire(cl)
			require.ErrorContains(t, err, "outcome unknown", name)
			require.NotErrorIs(t, err, lease.ErrInvalid, name)
			require.ErrorContains(t, err, "out of range", name)
			record := recordOf(t, store, "job")
			assert.Equal(t, lease.Held, record.State, name)
		}
	}
}

// Another server can take what the first one refuses by now.
func TestAnAcquireThatWasGrantedIsFoundAtTheNextServerIfThisOneRefusesItByNow(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, first := servetest.Serve(t, leaseserver.Config{Store: store})
	_, second := servetest.Serve(t, leaseserver.Config{Store: store, TTLPolicies: []leaseserver.TTLPolicy{{Max: time.Second}}})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: 1}
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{first.URL, second.URL}, HTTPClient: &http.Client{Transport: transport}})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	assert.Equal(t, uint64(1), l.Token)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

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
