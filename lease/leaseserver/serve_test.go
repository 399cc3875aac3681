package leaseserver_test

import (
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// running is a server that serves, until the test or stop ends it.
type running struct {
	*leaseserver.Server
	url  string
	stop func() error
}

func run(t *testing.T, c leaseserver.Config) running {
	t.Helper()
	s, err := leaseserver.New(c)
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	stop := sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { _ = stop() })
	return running{s, "http://" + listener.Addr().String(), stop}
}

func TestTokensAreAsked(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}, {Secret: "another-long-token"}}})
	for _, c := range []struct {
		header string
		status int
	}{
		{"", 401},
		{"Bearer", 401},
		{"Bearer ", 401},
		{"Bearer " + servetest.Token + "x", 401},
		{"Basic " + servetest.Token, 401},
		{"Bearer " + servetest.Token, 404},
		{"bearer another-long-token", 404},
	} {
		a := send(t, h, http.MethodGet, "/v1/locks/x", "", "Authorization", c.header)
		assert.Equal(t, c.status, a.status, c.header)
		assert.Equal(t, c.status == 401, a.header.Get("WWW-Authenticate") != "")
	}
	for path, status := range map[string]int{"/healthz": 204, "/readyz": 204, "/v1/openapi.json": 200, "/metrics": 401, "/v1/locks": 401} {
		assert.Equal(t, status, send(t, h, http.MethodGet, path, "").status, path)
	}
	acquire(t, servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token}), servetest.Ask("job", "a"))
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorIs(t, err, leasehttp.ErrDenied)
}

func TestWithoutTokensOnlyThisMachineIsAnswered(t *testing.T) {
	t.Parallel()
	s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
	require.NoError(t, err)
	open, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), AllowInsecure: true})
	require.NoError(t, err)
	for _, c := range []struct {
		remote, host, proxy string
		status              int
	}{
		{"127.0.0.1:1", "localhost:8080", "", 404},
		{"[::1]:1", "[::1]:8080", "", 404},
		{"127.0.0.1:1", "evil.example:8080", "", 403}, // a name that was bound anew to loopback
		{"127.0.0.1:1", "localhost", "10.0.0.1", 403},
		{"10.0.0.1:1", "localhost", "", 403},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/locks/x", nil)
		r.RemoteAddr, r.Host = c.remote, c.host
		if c.proxy != "" {
			r.Header.Set("X-Forwarded-For", c.proxy)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		assert.Equal(t, c.status, w.Code, "%+v", c)
		w = httptest.NewRecorder()
		open.Handler().ServeHTTP(w, r)
		assert.Equal(t, 404, w.Code, "%+v", c)
	}
}

func TestWhatComesThroughAProxyIsNotOfThisMachine(t *testing.T) {
	t.Parallel()
	s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
	require.NoError(t, err)
	for _, header := range []string{
		"Via", "Forwarded", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix",
		"True-Client-IP", "Client-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-Original-Host", "X-Original-URL", "X-Original-Forwarded-For",
		"CF-Connecting-IP", "CF-Ray", "CDN-Loop", "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "X-Envoy-External-Address", "X-Envoy-Expected-Rq-Timeout-Ms",
		"X-Cloud-Trace-Context", "X-Azure-ClientIP", "X-ARR-LOG-ID", "Fastly-Client-IP", "Fly-Client-IP", "X-Akamai-Edgescape", "X-Varnish",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/locks/x", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		require.Equal(t, 404, w.Code, "the control")
		r.Header.Set(header, "")
		w = httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		assert.Equal(t, 403, w.Code, header)
	}
}

func TestAuthorizeDecidesAndItsTextStaysBehind(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Authorize: func(*http.Request) error { return errors.New("secret") }})
	a := send(t, h, http.MethodGet, "/v1/locks/x", "")
	assert.Equal(t, 403, a.status)
	assert.NotContains(t, a.body, "secret")
}

func TestAServerThatOthersReachNeedsTLSAndTokens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config leaseserver.Config
		lacks  string
	}{
		{leaseserver.Config{}, "TLS"},
		{leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}}, "TLS"},
		{leaseserver.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, "Tokens"},
	} {
		c.config.Store = leasetest.NewStore()
		s, err := leaseserver.New(c.config)
		require.NoError(t, err)
		err = s.ListenAndServe(t.Context(), "0.0.0.0:0")
		require.ErrorContains(t, err, c.lacks+" is not set")
		require.ErrorContains(t, err, "AllowInsecure")
	}
}

func TestConfigsThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	election := servetest.NewPeerOf(t, leaseserver.Config{}).Election
	tokens := func(all ...leaseserver.Token) leaseserver.Config { return leaseserver.Config{Tokens: all} }
	called := func(name string) leaseserver.Token { return leaseserver.Token{Secret: tokenOfAdmin, Name: name} }
	for _, c := range []struct {
		want   string
		config leaseserver.Config
	}{
		{"Tokens[0] has 5", tokens(leaseserver.Token{Secret: "short"})},
		{"MaxWait is negative", leaseserver.Config{MaxWait: -1}},
		{"Rate is -0.5", leaseserver.Config{Rate: -.5}},
		{"Tokens and Authorize", leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}, Authorize: func(*http.Request) error { return nil }}},
		{"Tokens[0] has the name", tokens(called("a\nb"))},
		{"Tokens[0] has the name", tokens(called("\xff"))},
		{"Tokens[0] has the name", tokens(called(strings.Repeat("x", 129)))},
		{"Tokens[0] has a Certificate that is no name", tokens(leaseserver.Token{Certificate: "ops"})},
		{"use cn:NAME or san:NAME", tokens(leaseserver.Token{Certificate: "cn:"})},
		{"Tokens[0] has a Secret, too", tokens(leaseserver.Token{Certificate: "cn:a", Secret: servetest.Token})},
		{"Tokens[1] is Tokens[0] again", tokens(leaseserver.Token{Certificate: "cn:a"}, leaseserver.Token{Certificate: "cn:a", Right: leaseserver.Read})},
		{"use a name that clients do not have", leaseserver.Config{Peers: leaseserver.Peers{Election: election, Certificate: "cn:*"}}},
	} {
		c.config.Store = leasetest.NewStore()
		_, err := leaseserver.New(c.config)
		require.ErrorContains(t, err, c.want)
	}
	_, err := leaseserver.New(leaseserver.Config{})
	require.ErrorContains(t, err, "Store is nil")
}

func TestItSpeaksTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	s := run(t, leaseserver.Config{Store: leasetest.NewStore(), TLS: &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS13}})
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{"https" + s.url[len("http"):]}, TLS: servetest.Trust(certified)})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	cl.Close()
}

func TestShutdownAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	entered, finish := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	store := &servetest.Spy{Store: leasetest.NewStore(), After: func() {
		if first.CompareAndSwap(false, true) {
			close(entered)
			<-finish
		}
	}}
	s := run(t, leaseserver.Config{Store: store})
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}, Resends: -1})
	type result struct {
		l   lease.Lease
		err error
	}
	working, waiting := make(chan result, 1), make(chan error, 1)
	go func() {
		l, err := cl.Acquire(context.WithoutCancel(t.Context()), servetest.Ask("job", "a"))
		working <- result{l, err}
	}()
	<-entered
	acquire(t, store.Store, servetest.Ask("held", "a"))
	go func() {
		_, err := cl.AcquireWait(context.WithoutCancel(t.Context()), servetest.Ask("held", "b"), time.Minute)
		waiting <- err
	}()
	servetest.AwaitWaiters(t, s.Server, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	require.ErrorIs(t, <-waiting, lease.ErrBusy, "a waiter is sent away")
	select {
	case <-stopped:
		require.Fail(t, "stopped with a request under way")
	default:
	}
	close(finish)
	got := <-working
	require.NoError(t, got.err)
	require.NoError(t, <-stopped)
	record := recordOf(t, store, "job")
	assert.Equal(t, got.l.Claim, record.Claim)
}

func TestADrainingServerIsNotReady(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{})
	assert.Equal(t, 204, send(t, h, http.MethodGet, "/readyz", "").status)
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()))
	assert.Equal(t, 503, send(t, h, http.MethodGet, "/readyz", "").status)
	assert.Equal(t, 204, send(t, h, http.MethodGet, "/healthz", "").status)
}

func TestAWaitOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s := run(t, leaseserver.Config{Store: store, ReadTimeout: 2 * time.Second})
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}, Resends: -1})
	acquire(t, store, lease.AcquireRequest{Name: "job", Holder: "a", TTL: 4 * time.Second})
	_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
	require.NoError(t, err)
}

func TestTheRateOfAnAddressIsLimited(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Rate: 0.001, Burst: 2})
	for range 2 {
		require.Equal(t, 404, send(t, h, http.MethodGet, "/v1/locks/x", "").status)
	}
	a := send(t, h, http.MethodGet, "/v1/locks/x", "")
	assert.Equal(t, 429, a.status)
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	assert.Equal(t, 204, send(t, h, http.MethodGet, "/healthz", "").status)
	assert.Equal(t, 200, send(t, h, http.MethodGet, "/metrics", "").status)
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorIs(t, err, lease.ErrBusy)
}

func TestTheMonitorCountsAndLogs(t *testing.T) {
	t.Parallel()
	var log capture.Text
	s := run(t, leaseserver.Config{Store: leasetest.NewStore(), SweepInterval: 5 * time.Millisecond, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}})
	acquire(t, cl, servetest.Ask("held", "a"))
	acquire(t, cl, lease.AcquireRequest{Name: "brief", Holder: "a", TTL: lease.MinTTL})
	await.Until(t, servetest.Bound, func() bool {
		return servetest.Metric(t, s.Server, "lock_expired_total") == 1 && servetest.Metric(t, s.Server, "locks_held") == 1
	})
	require.NoError(t, s.stop())
	assert.Contains(t, log.String(), `"msg":"sweep","latency_ms":`)
}

// A backlog is a store whose sweeps have more to do so often.
type backlog struct {
	lease.Store
	left atomic.Int64
}

func (b *backlog) Sweep(context.Context, lease.SweepRequest) (lease.SweepResult, error) {
	return lease.SweepResult{Removed: 1, More: b.left.Add(-1) > 0}, nil
}

func TestTheMonitorSweepsAgainAtOnceWhileThereIsMore(t *testing.T) {
	t.Parallel()
	store := &backlog{Store: leasetest.NewStore()}
	store.left.Store(50)
	s := run(t, leaseserver.Config{Store: store, SweepInterval: time.Hour})
	await.Until(t, servetest.Bound, func() bool { return store.left.Load() == 0 })
	require.NoError(t, s.stop())
	require.Zero(t, store.left.Load(), "and not without need")
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	s := run(t, leaseserver.Config{Store: leasetest.NewStore(), MaxConns: 1})
	first := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}})
	_, err := first.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err) // and its connection stays open
	second := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}, Timeout: 50 * time.Millisecond, Resends: -1})
	_, err = second.Get(t.Context(), "job")
	require.Error(t, err)
	first.Close()
	patient := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{s.url}})
	recordOf(t, patient, "job")
	patient.Close()
}

func TestMain(m *testing.M) { leak.Main(m) }

const aMoment = 10 * time.Millisecond

// An answer is what a plain HTTP client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func send(tb testing.TB, h *httptest.Server, method, target, body string, header ...string) answer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), servetest.Bound)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.URL+target, strings.NewReader(body))
	require.NoError(tb, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := h.Client().Do(r)
	require.NoError(tb, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return answer{response.StatusCode, response.Header, string(data)}
}

// awaitStanding waits until the first request that waits for a lock was refused, and can be handed the lock.
func awaitStanding(tb testing.TB, s *leaseserver.Server, name string) {
	tb.Helper()
	await.Until(tb, servetest.Bound, func() bool { return s.Stands(name) })
}

// post sends a request that may fail.
func post(ctx context.Context, h *httptest.Server, target, body string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := h.Client().Do(r)
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

func acquire(tb testing.TB, s interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
}, r lease.AcquireRequest,
) lease.Lease {
	tb.Helper()
	l, err := s.Acquire(tb.Context(), r)
	require.NoError(tb, err)
	return l
}

func recordOf(tb testing.TB, s interface {
	Get(ctx context.Context, name string) (lease.Record, error)
}, name string,
) lease.Record {
	tb.Helper()
	r, err := s.Get(tb.Context(), name)
	require.NoError(tb, err)
	return r
}

// served serves a server to a client.
func served(t *testing.T, c leaseserver.Config) (*leaseserver.Server, *httptest.Server, *leasehttp.Client) {
	t.Helper()
	s, h := servetest.Serve(t, c)
	return s, h, servetest.Client(t, h, leasehttp.ClientConfig{})
}
