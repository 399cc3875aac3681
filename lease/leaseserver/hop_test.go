package leaseserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// encoded returns a certificate of this subject, as a server that forwards encodes the certificate of its client.
func encoded(t *testing.T, commonName string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := named(commonName, func(c *x509.Certificate) { c.SerialNumber = big.NewInt(1) })
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(der)
}

// The active server takes a client's identity only from a connection with a verified certificate that has
// the name of servers. The first row is the control.
func TestOnlyAServerWithTheRightNameForwardsTheIdentityOfACertificate(t *testing.T) {
	t.Parallel()
	const secret, locks = "the-secret-of-servers", "locks.example"
	ops := encoded(t, "ops")
	server := func(name string, validFor time.Duration) *x509.Certificate {
		return named(name, func(c *x509.Certificate) { c.DNSNames, c.NotAfter = []string{name}, time.Now().Add(validFor) })
	}
	const unknown = http.StatusNotFound // the request is allowed, and nobody knows the lock
	for name, c := range map[string]struct {
		peers    leaseserver.Peers
		leaf     *x509.Certificate
		verified bool
		header   []string
		status   int
	}{
		"the name of servers": {leaseserver.Peers{Certificate: "san:" + locks}, server(locks, time.Hour), true, []string{"Pglatch-Forwarded", "a"}, unknown},
		"another name":        {leaseserver.Peers{Certificate: "san:" + locks}, server("worker.example", time.Hour), true, []string{"Pglatch-Forwarded", "a"}, http.StatusMisdirectedRequest},
		"the name as one of another kind": {
			leaseserver.Peers{Certificate: "cn:" + locks},
			named("x", func(c *x509.Certificate) { c.DNSNames = []string{locks} }), true,
			[]string{"Pglatch-Forwarded", "a"},
			http.StatusMisdirectedRequest,
		},
		"a certificate that nobody verified": {leaseserver.Peers{Certificate: "san:" + locks}, server(locks, time.Hour), false, []string{"Pglatch-Forwarded", "a"}, http.StatusMisdirectedRequest},
		"an expired certificate":             {leaseserver.Peers{Certificate: "san:" + locks}, server(locks, -time.Second), true, []string{"Pglatch-Forwarded", "a"}, http.StatusMisdirectedRequest},
		"another name, with the servers' token": {
			leaseserver.Peers{Certificate: "san:" + locks, Token: secret},
			server("worker.example", time.Hour), true,
			[]string{"Pglatch-Forwarded", "a", "Pglatch-Peer-Token", secret},
			http.StatusUnauthorized,
		},
		"the servers' token alone": {
			leaseserver.Peers{Token: secret}, server(locks, time.Hour), true, []string{"Pglatch-Forwarded", "a", "Pglatch-Peer-Token", secret}, http.StatusUnauthorized,
		},
		"the servers prove nothing":      {leaseserver.Peers{}, server(locks, time.Hour), true, []string{"Pglatch-Forwarded", "a"}, http.StatusUnauthorized},
		"a client that forwards nothing": {leaseserver.Peers{Certificate: "san:" + locks}, server("worker.example", time.Hour), true, nil, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := servetest.NewPeerOf(t, leaseserver.Config{Tokens: []leaseserver.Token{{Certificate: "cn:ops", Right: leaseserver.Read}}, Peers: c.peers})
			p.Election.Believe(p.HTTP.URL)
			servetest.AwaitMetric(t, p.Server, "lock_server_active", 1)
			got := sendWith(t, p.Server, c.leaf, c.verified, http.MethodGet, "/v1/locks/job", "", append([]string{"Pglatch-Client-Certificate", ops}, c.header...)...)
			assert.Equal(t, c.status, got.Code, got.Body)
		})
	}
}

// The servers of a store have different files of tokens, as while a new file is rolled out. A forwarded request
// needs the right at both servers.
func TestAForwardedRequestHasOnlyTheRightsThatBothServersGrant(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other, active []leaseserver.Token
		status        int
	}{
		"the same token":           {[]leaseserver.Token{{Secret: servetest.Token}}, []leaseserver.Token{{Secret: servetest.Token}}, http.StatusOK},
		"unknown where it arrives": {[]leaseserver.Token{{Secret: tokenOfReader}}, []leaseserver.Token{{Secret: servetest.Token}}, http.StatusUnauthorized},
		"unknown at the active":    {[]leaseserver.Token{{Secret: servetest.Token}}, []leaseserver.Token{{Secret: tokenOfReader}}, http.StatusUnauthorized},
		"a narrower right where it arrives": {
			[]leaseserver.Token{{Secret: servetest.Token, Right: leaseserver.Read}}, []leaseserver.Token{{Secret: servetest.Token}}, http.StatusForbidden,
		},
		"a narrower right at the active": {
			[]leaseserver.Token{{Secret: servetest.Token}}, []leaseserver.Token{{Secret: servetest.Token, Right: leaseserver.Read}}, http.StatusForbidden,
		},
		"another prefix at the active": {
			[]leaseserver.Token{{Secret: servetest.Token}}, []leaseserver.Token{{Secret: servetest.Token, Prefix: "reports/"}}, http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			active, other := servetest.NewPeerOf(t, leaseserver.Config{Tokens: c.active}), servetest.NewPeerOf(t, leaseserver.Config{Tokens: c.other})
			servetest.Elect(t, []servetest.Peer{active, other}, 0)
			a := send(t, other.HTTP, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":60000}`, "Authorization", "Bearer "+servetest.Token)
			assert.Equal(t, c.status, a.status, a.body)
		})
	}
}

// A client cannot speak for a server: its own headers between servers, and those of its connection, end where the request
// arrives. The last header is the control.
func TestAForwardedRequestHasNoHopHeadersOfItsClient(t *testing.T) {
	t.Parallel()
	arrived := make(chan http.Header, 1)
	active := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/locks/job" {
			select {
			case arrived <- r.Header:
			default:
			}
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	active.Config.Protocols = new(http.Protocols)
	active.Config.Protocols.SetUnencryptedHTTP2(true)
	active.Start()
	t.Cleanup(active.Close)
	p := servetest.NewPeerOf(t, leaseserver.Config{})
	p.Election.Believe(active.URL)
	servetest.AwaitMetric(t, p.Server, "lock_server_forwards", 1)
	const forged = "forged"
	header := []string{
		"Pglatch-Peer-Token", forged, "Pglatch-Client-Certificate", forged, "Pglatch-Waited-Ms", forged, "Pglatch-Active-Process", forged,
		"Connection", "X-Private", "X-Private", forged, "Te", "trailers", "Proxy-Authorization", forged, "Idempotency-Key", forged, "X-Kept", "kept",
	}
	var got http.Header
	await.Until(t, servetest.Bound, func() bool {
		send(t, p.HTTP, http.MethodGet, "/v1/locks/job", "", header...)
		select {
		case got = <-arrived:
		default: // it was answered here, because a probe was late
		}
		return got != nil
	})
	for name, values := range got {
		assert.NotContains(t, values, forged, name)
	}
	assert.NotContains(t, got, "Te")
	assert.NotContains(t, got, "Connection")
	assert.Equal(t, []string{"kept"}, got["X-Kept"])
	assert.NotEmpty(t, got["Pglatch-Forwarded"])
}
