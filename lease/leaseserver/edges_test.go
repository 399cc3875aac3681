package leaseserver_test

import (
	"bufio"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestWhoIsRefusedForTheRateCanBeSeenInTheMetrics(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Rate: 0.001, Burst: 1})
	assert.Equal(t, http.StatusNotFound, send(t, h, http.MethodGet, "/v1/locks/job", "").status)
	assert.Equal(t, http.StatusTooManyRequests, send(t, h, http.MethodGet, "/v1/locks/job", "").status)
	for range 3 {
		assert.Equal(t, http.StatusOK, send(t, h, http.MethodGet, "/metrics", "").status)
	}
}

func TestACertificateWithTwoCommonNamesHasNone(t *testing.T) {
	t.Parallel()
	s, _ := servetest.Serve(t, leaseserver.Config{Tokens: tokensOfCertificates})
	for n, status := range map[int]int{1: http.StatusNotFound, 2: http.StatusUnauthorized} {
		leaf := named("ops", func(c *x509.Certificate) {
			for range n { // the last is what Go calls the CommonName
				c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "ops"})
			}
		})
		assert.Equal(t, status, sendWith(t, s, leaf, true, http.MethodGet, "/v1/locks/job", "").Code, "%d names", n)
	}
}

// A client that ends its side of the connection cannot be told from one that hung up: it holds nothing, and is told why.
func TestAHalfClosedClientIsToldWhyItGetsNothing(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h := servetest.Serve(t, leaseserver.Config{Store: store})
	_, err := servetest.NewPeer(t, store, -1).Client.Acquire(t.Context(), servetest.Ask("held", "a"))
	require.NoError(t, err)
	for _, c := range []struct{ path, body string }{
		{"/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":60000}`},
		{"/v1/locks/held/acquire?wait=1m", `{"owner_id":"b","ttl_ms":60000,"idempotency_key":"k"}`},
		{"/v1/locks/shared/acquire", `{"owner_id":"a","ttl_ms":60000,"slots":1}`},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", h.Listener.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path, len(c.body), c.body)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		_ = answer.Body.Close()
		_ = conn.Close()
		if answer.StatusCode == http.StatusOK {
			continue // it was answered before the server saw that
		}
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, string(text))
		assert.Contains(t, string(text), "keep both sides open")
	}
	servetest.AwaitWaiters(t, s, 0)
}
