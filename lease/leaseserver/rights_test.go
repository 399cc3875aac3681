package leaseserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

const (
	tokenOfAdmin   = "admin-0123456789abcdef"
	tokenOfHolder  = "hold-0123456789abcdef"
	tokenOfReader  = "read-0123456789abcdef"
	tokenOfMetrics = "metrics-0123456789abcdef"
	tokenOfJobs    = "jobs-0123456789abcdef"
)

var tokensOfAll = []leaseserver.Token{
	{Secret: tokenOfAdmin},
	{Secret: tokenOfHolder, Right: leaseserver.Hold},
	{Secret: tokenOfReader, Right: leaseserver.Read},
	{Secret: tokenOfMetrics, Right: leaseserver.Metrics},
	{Secret: tokenOfJobs, Prefix: "jobs/"},
}

func TestATokenIsGoodForWhatItSaysAndForNothingElse(t *testing.T) {
	t.Parallel()
	const acquire, claim = `{"owner_id":"a","ttl_ms":30000,"idempotency_key":"k"}`, `{"owner_id":"a","lease_id":"x","fencing_token":1`
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: tokensOfAll})
	for _, c := range []struct {
		method, target, body string
		allowed              string // of who may, in the order below
	}{
		{http.MethodPost, "/v1/locks/job/acquire", acquire, "admin hold"},
		{http.MethodPost, "/v1/locks/job/renew", claim + `,"ttl_ms":30000}`, "admin hold"},
		{http.MethodPost, "/v1/locks/job/release", claim + `}`, "admin hold"},
		{http.MethodPost, "/v1/locks/job/adopt", `{"owner_id":"a","lease_id":"x"}`, "admin hold"},
		{http.MethodPost, "/v1/batch", `{}`, "admin hold jobs"},
		{http.MethodGet, "/v1/locks/job", "", "admin hold read"},
		{http.MethodHead, "/v1/locks/job", "", "admin hold read"},
		{http.MethodGet, "/v1/locks", "", "admin hold read"},
		{http.MethodGet, "/v1/locks?prefix=job", "", "admin hold read"},
		{http.MethodGet, "/metrics", "", "admin hold read metrics jobs"},
		{http.MethodPost, "/v1/locks/jobs%2Fx/acquire", acquire, "admin hold jobs"},
		{http.MethodGet, "/v1/locks/jobs%2Fx", "", "admin hold read jobs"},
		{http.MethodGet, "/v1/locks?prefix=jobs%2F", "", "admin hold read jobs"},
		{http.MethodGet, "/v1/locks?prefix=jobs%2Fx", "", "admin hold read jobs"},
	} {
		for _, token := range tokensOfAll {
			who, _, _ := strings.Cut(token.Secret, "-")
			got := send(t, h, c.method, c.target, c.body, "Authorization", "Bearer "+token.Secret)
			allowed := strings.Contains(c.allowed, who)
			assert.Equal(t, !allowed, got.status == http.StatusForbidden, "%s %s by %s: %d %s", c.method, c.target, who, got.status, got.body)
			if !allowed && c.method != http.MethodHead {
				assert.Contains(t, got.body, `problems/forbidden"`)
				assert.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
			}
		}
	}
}

func TestOnlyAnAdminSeesTheIDsOfLeases(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: tokensOfAll})
	held := acquire(t, servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfHolder}), servetest.Ask("job", "a"))
	for token, sees := range map[string]bool{tokenOfAdmin: true, tokenOfHolder: false, tokenOfReader: false} {
		for _, target := range []string{"/v1/locks/job", "/v1/locks"} {
			got := send(t, h, http.MethodGet, target, "", "Authorization", "Bearer "+token)
			assert.Equal(t, sees, strings.Contains(got.body, held.ID), "%s by %s", target, token)
		}
	}
}

func TestTokensAreReplacedWithoutAPause(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{Tokens: tokensOfAll[:1]})
	list := func(token string) int {
		return send(t, h, http.MethodGet, "/v1/locks", "", "Authorization", "Bearer "+token).status
	}
	require.Equal(t, []int{200, 401}, []int{list(tokenOfAdmin), list(tokenOfReader)})
	for _, bad := range [][]leaseserver.Token{nil, {{Secret: "short"}}, {{Secret: tokenOfReader, Right: 9}}, {{Secret: tokenOfReader, Right: leaseserver.Read}, {Secret: tokenOfReader}}} {
		require.Error(t, s.SetTokens(bad))
		require.Equal(t, []int{200, 401}, []int{list(tokenOfAdmin), list(tokenOfReader)}, "what was is kept")
	}
	require.NoError(t, s.SetTokens(tokensOfAll[2:]))
	require.Equal(t, []int{401, 200}, []int{list(tokenOfAdmin), list(tokenOfReader)})
	open, _ := servetest.Serve(t, leaseserver.Config{})
	require.Error(t, open.SetTokens(tokensOfAll), "who came in before would be locked out")
}

func TestRightsHaveNames(t *testing.T) {
	t.Parallel()
	for _, right := range []leaseserver.Right{leaseserver.Admin, leaseserver.Hold, leaseserver.Read, leaseserver.Metrics} {
		parsed, err := leaseserver.ParseRight(right.String())
		require.NoError(t, err)
		assert.Equal(t, right, parsed)
	}
	_, err := leaseserver.ParseRight("root")
	require.ErrorContains(t, err, "admin, hold, read, metrics")
	assert.Equal(t, "Right(9)", leaseserver.Right(9).String())
}

var tokensOfCertificates = []leaseserver.Token{
	{Certificate: "cn:ops"},
	{Certificate: "cn:worker", Right: leaseserver.Hold, Prefix: "jobs/"},
	{Certificate: "san:reader.example", Right: leaseserver.Read},
	{Certificate: "san:192.0.2.7", Right: leaseserver.Read},
	{Certificate: "san:spiffe://a/b", Right: leaseserver.Read},
	{Certificate: "san:x@example.org", Right: leaseserver.Read},
	{Secret: tokenOfReader, Right: leaseserver.Read},
}

// sendWith is a request over a connection with that client certificate, verified or not.
func sendWith(t *testing.T, s *leaseserver.Server, leaf *x509.Certificate, verified bool, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if verified {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf}}
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, r)
	return answer
}

func named(commonName string, more func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}, NotAfter: time.Now().Add(time.Hour)}
	if more != nil {
		more(c)
	}
	return c
}

func TestACertificateIsGoodForWhatItsNameSays(t *testing.T) {
	t.Parallel()
	var book logBook
	s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: tokensOfCertificates, Logger: slog.New(slog.NewJSONHandler(&book, nil))})
	require.NoError(t, err)
	const acquire = `{"owner_id":"a","ttl_ms":3600000}`
	uri, err := url.Parse("spiffe://a/b")
	require.NoError(t, err)
	expired := named("ops", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
	for i, c := range []struct {
		leaf           *x509.Certificate
		verified       bool
		method, target string
		token          string
		status         int
	}{
		{named("ops", nil), true, http.MethodPost, "/v1/locks/x/acquire", "", 200},
		{named("ops", nil), false, http.MethodPost, "/v1/locks/y/acquire", "", 401},
		{expired, true, http.MethodGet, "/v1/locks", "", 401},
		{named("worker", nil), true, http.MethodPost, "/v1/locks/jobs%2Fx/acquire", "", 200},
		{named("worker", nil), true, http.MethodPost, "/v1/locks/z/acquire", "", 403},
		{named("Worker", nil), true, http.MethodGet, "/v1/locks/x", "", 401},
		{named("reader.example", nil), true, http.MethodGet, "/v1/locks", "", 401},
		{named("a", func(c *x509.Certificate) { c.DNSNames = []string{"reader.example"} }), true, http.MethodGet, "/v1/locks", "", 200},
		{named("a", func(c *x509.Certificate) { c.DNSNames = []string{"reader.example"} }), true, http.MethodPost, "/v1/locks/z/acquire", "", 403},
		{named("a", func(c *x509.Certificate) { c.DNSNames = []string{"*.example"} }), true, http.MethodGet, "/v1/locks", "", 401},
		{named("a", func(c *x509.Certificate) { c.DNSNames = []string{"ops"} }), true, http.MethodGet, "/v1/locks", "", 401},
		{named("a", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 7)} }), true, http.MethodGet, "/v1/locks", "", 200},
		{named("a", func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }), true, http.MethodGet, "/v1/locks", "", 200},
		{named("a", func(c *x509.Certificate) { c.EmailAddresses = []string{"x@example.org"} }), true, http.MethodGet, "/v1/locks", "", 200},
		{named("", nil), true, http.MethodGet, "/v1/locks", "", 401},
		{named("a", nil), true, http.MethodGet, "/v1/locks", tokenOfReader, 200},
		{named("ops", nil), true, http.MethodPost, "/v1/locks/z/acquire", tokenOfReader, 403},
		{named("ops", nil), true, http.MethodGet, "/v1/locks", "another-0123456789", 401},
		{named("ops", nil), true, http.MethodGet, "/v1/locks", "none", 401},
	} {
		var header []string
		switch c.token {
		case "":
		case "none": // which is what certificates have
			header = []string{"Authorization", "Bearer "}
		default:
			header = []string{"Authorization", "Bearer " + c.token}
		}
		body := ""
		if c.method == http.MethodPost {
			body = acquire
		}
		got := sendWith(t, s, c.leaf, c.verified, c.method, c.target, body, header...)
		assert.Equal(t, c.status, got.Code, "%d: %s", i, got.Body)
	}
	got := sendWith(t, s, named("ops\n\xff"+strings.Repeat("é", 200), nil), true, http.MethodPost, "/v1/locks/x/force-release", `{"reason":"x"}`)
	require.Equal(t, http.StatusUnauthorized, got.Code)
	got = sendWith(t, s, named("ops", func(c *x509.Certificate) { c.Subject.Organization = []string{"a\nb"} }), true, http.MethodPost, "/v1/locks/x/force-release", `{"reason":"x"}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Len(t, book.lines(t, "lease_force_released"), 1)
	assert.Equal(t, "CN=ops,O=ab", book.lines(t, "lease_force_released")[0]["by"])
}

func TestAnyCertificateCanBeGoodForSomething(t *testing.T) {
	t.Parallel()
	s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Tokens: []leaseserver.Token{
		{Certificate: "cn:ops", Right: leaseserver.Metrics}, {Certificate: "cn:*", Right: leaseserver.Read},
	}})
	require.NoError(t, err)
	assert.Equal(t, 200, sendWith(t, s, named("", nil), true, http.MethodGet, "/v1/locks", "").Code)
	assert.Equal(t, 403, sendWith(t, s, named("ops", nil), true, http.MethodGet, "/v1/locks", "").Code, "the first that fits counts")
	assert.Equal(t, 401, sendWith(t, s, named("ops", nil), false, http.MethodGet, "/v1/locks", "").Code)
}

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
