// Package servetest serves leases to clients in a test.
package servetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

const (
	// Long is a TTL that does not end while a test runs.
	Long = time.Hour

	// Bound is the time limit for short events.
	Bound = await.Soon

	// Token is a valid token for a server.
	Token = "0123456789abcdef"
)

// Serve starts a server on a store in memory, unless the config has one.
func Serve(tb testing.TB, c leaseserver.Config) (*leaseserver.Server, *httptest.Server) {
	tb.Helper()
	if c.Store == nil {
		c.Store = leasetest.NewStore()
	}
	if c.Registry == nil { // the server's own has the process metrics too, which take long to gather
		c.Registry = prometheus.NewRegistry()
	}
	s, err := leaseserver.New(c)
	require.NoError(tb, err)
	h := httptest.NewUnstartedServer(s.Handler())
	s.Configure(h.Config)
	h.EnableHTTP2 = c.Peers.Election != nil
	if c.TLS != nil {
		h.TLS = c.TLS
		h.StartTLS()
	} else {
		h.Start()
	}
	tb.Cleanup(h.Close)
	return s, h
}

// Client returns a client of a server, or of the one that its config names.
func Client(tb testing.TB, h *httptest.Server, c leasehttp.ClientConfig) *leasehttp.Client {
	tb.Helper()
	if h != nil {
		c.BaseURLs = []string{h.URL}
	}
	cl, err := leasehttp.NewClient(c)
	require.NoError(tb, err)
	tb.Cleanup(cl.Close)
	return cl
}

// Trust returns the TLS configuration of a client that trusts a server's certificate.
func Trust(h *httptest.Server) *tls.Config {
	return h.Client().Transport.(*http.Transport).TLSClientConfig
}

// Ask returns a request for a long lease.
func Ask(name, holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: holder, TTL: Long}
}

// Metric sums the samples of a metric.
func Metric(tb testing.TB, s *leaseserver.Server, name string, labels ...string) float64 {
	tb.Helper()
	families, err := s.Registry.Gather()
	require.NoError(tb, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if !strings.Contains(fmt.Sprint(m.GetLabel()), strings.Join(labels, "")) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// Waiters returns the gauge of waiting requests.
func Waiters(tb testing.TB, s *leaseserver.Server) int {
	tb.Helper()
	return int(Metric(tb, s, "lock_waiters"))
}

// AwaitWaiters waits until n requests wait.
func AwaitWaiters(tb testing.TB, s *leaseserver.Server, n int) {
	tb.Helper()
	await.Until(tb, await.Soon, func() bool { return Waiters(tb, s) == n })
}

// A Spy counts the requests to a store, and answers with its error if it has one.
type Spy struct {
	lease.Store

	Acquires atomic.Int64
	Err      error
	Before   func() // called before an acquire; nil = nothing
	After    func() // called after an acquire; nil = nothing
}

// Acquire counts.
func (s *Spy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.Acquires.Add(1)
	if s.Before != nil {
		s.Before()
	}
	if s.Err != nil {
		return lease.Lease{}, s.Err
	}
	l, err := s.Store.Acquire(ctx, r)
	if s.After != nil {
		s.After()
	}
	return l, err
}
