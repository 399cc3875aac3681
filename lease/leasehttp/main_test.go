package leasehttp_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long is a TTL that does not end while a test runs, and bound how long anything
// may take that should come soon.
const (
	long  = time.Hour
	bound = 20 * time.Second

	aMoment = 10 * time.Millisecond
)

// serve starts a server on a store in memory, unless the config has one.
func serve(tb testing.TB, c leasehttp.Config) (*leasehttp.Server, *httptest.Server) {
	tb.Helper()
	if c.Store == nil {
		c.Store = leasetest.NewStore()
	}
	if c.Registry == nil { // the server's own has the process, too, which takes long to gather
		c.Registry = prometheus.NewRegistry()
	}
	s, err := leasehttp.New(c)
	require.NoError(tb, err)
	h := httptest.NewServer(s.Handler())
	tb.Cleanup(h.Close)
	return s, h
}

func client(tb testing.TB, h *httptest.Server, c leasehttp.ClientConfig) *leasehttp.Client {
	tb.Helper()
	if h != nil {
		c.BaseURL = h.URL
	}
	cl, err := leasehttp.NewClient(c)
	require.NoError(tb, err)
	tb.Cleanup(cl.Close)
	return cl
}

// trusted is how a client trusts a server's certificate.
func trusted(h *httptest.Server) *tls.Config {
	return h.Client().Transport.(*http.Transport).TLSClientConfig
}

func ask(name, holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: holder, TTL: long}
}

// An answer is what a plain HTTP client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func send(tb testing.TB, h *httptest.Server, method, target, body string, header ...string) answer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), bound)
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
