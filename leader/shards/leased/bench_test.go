package leased_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards/leased"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// behindServer returns a client of a lock server on a store, and how many requests it had.
func behindServer(b *testing.B) (leased.Store, *atomic.Int64) {
	b.Helper()
	s, err := leaseserver.New(leaseserver.Config{Store: openSQLite(b)})
	require.NoError(b, err)
	requests, handler := new(atomic.Int64), s.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{server.URL}})
	require.NoError(b, err)
	b.Cleanup(client.Close)
	return client, requests
}

// One round claims 1,000 shards, has them for a minute in which nothing changes, and releases them. The minute is
// what a node does by its defaults: a renewal each 5 s, a look each 3 s.
func BenchmarkAThousandShards(b *testing.B) {
	for _, on := range []struct {
		name string
		open func(b *testing.B) (leased.Store, *atomic.Int64)
	}{
		{"memory", func(*testing.B) (leased.Store, *atomic.Int64) { return leasetest.NewStore(), nil }},
		{"sqlite", func(b *testing.B) (leased.Store, *atomic.Int64) { b.Helper(); return openSQLite(b), nil }},
		{"postgres", func(b *testing.B) (leased.Store, *atomic.Int64) { b.Helper(); return openPostgres(b), nil }},
		{"server", behindServer},
	} {
		b.Run(on.name, func(b *testing.B) {
			store, requests := on.open(b)
			s, err := newBackend(b, store).Open(b.Context(), self("a"), time.Minute)
			require.NoError(b, err)
			defer s.Close()
			var claims, renewals, releases time.Duration
			var asked int64
			for b.Loop() {
				began := time.Now()
				require.Len(b, claim(b, s, names(1000)...), 1000)
				claims += time.Since(began)
				known := look(b, s, 0).Version
				if requests != nil {
					asked -= requests.Load()
				}
				for range 12 {
					began = time.Now()
					lost, err := s.Renew(b.Context(), time.Minute)
					require.NoError(b, err)
					require.Empty(b, lost)
					renewals += time.Since(began)
				}
				for range 20 {
					require.Nil(b, look(b, s, known).Owners)
				}
				if requests != nil {
					asked += requests.Load()
				}
				began = time.Now()
				require.NoError(b, s.Release(b.Context(), names(1000)))
				releases += time.Since(began)
			}
			n := float64(b.N)
			b.ReportMetric(1000*n/claims.Seconds(), "claims/s")
			b.ReportMetric(1000*n/releases.Seconds(), "releases/s")
			b.ReportMetric(float64(renewals.Milliseconds())/n/12, "ms/renewal")
			if requests != nil {
				b.ReportMetric(float64(asked)/n, "requests/min")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
