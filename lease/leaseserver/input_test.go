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
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

const validAcquire = `{"owner_id":"a","ttl_ms":1000}`

func TestWhatIsNotValidIsRefusedAndNothingStored(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	name := func(n string) string { return "/v1/locks/" + n + "/acquire" }
	for _, c := range []struct {
		what, target, body string
		status             int
	}{
		{"empty name", name(""), validAcquire, 400},
		{"name of 10 kB", name(strings.Repeat("n", 10<<10)), validAcquire, 400},
		{"NUL", name("a%00b"), validAcquire, 400},
		{"control character", name("a%0Ab"), validAcquire, 400},
		{"C1 control character", name("%C2%85"), validAcquire, 400},
		{"no UTF-8", name("%FF"), validAcquire, 400},
		{"overlong UTF-8", name("%C0%AF"), validAcquire, 400},
		{"surrogate", name("%ED%A0%80"), validAcquire, 400},
		{"dot", name("."), validAcquire, 400},
		{"dots", name("%2e%2e"), validAcquire, 400},
		{"traversal, escaped", name("..%2f..%2fetc%2fpasswd"), validAcquire, 400},
		{"traversal inside", name("a%2F..%2Fb"), validAcquire, 400},
		{"traversal", name("../../etc/passwd"), validAcquire, 404},
		{"slash that is not escaped", name("a/b"), validAcquire, 404},
		{"no body", name("x"), ``, 400},
		{"no JSON", name("x"), `owner_id=a`, 400},
		{"array", name("x"), `[]`, 400},
		{"null", name("x"), `null`, 400},
		{"two objects", name("x"), validAcquire + validAcquire, 400},
		{"rest", name("x"), validAcquire + "x", 400},
		{"unknown field", name("x"), `{"owner_id":"a","ttl_ms":1000,"idempotencykey":"k"}`, 400},
		{"field in another case", name("x"), `{"OWNER_ID":"a","ttl_ms":1000}`, 400},
		{"field in two cases", name("x"), `{"owner_id":"a","Owner_Id":"b","ttl_ms":1000}`, 400},
		{"field twice", name("x"), `{"owner_id":"a","owner_id":"b","ttl_ms":1000}`, 400},
		{"the same field twice, with spaces", name("x"), `{ "owner_id":"a", "ttl_ms":1000, "ttl_ms":1000}`, 400},
		{"field twice, once escaped", name("x"), `{"owner_id":"a","owner\u005fid":"b","ttl_ms":1000}`, 400},
		{"metadata twice", name("x"), `{"owner_id":"a","ttl_ms":1000,"metadata":{"k":"1"},"metadata":{"k":"2"}}`, 400},
		{"key of metadata twice", name("x"), `{"owner_id":"a","ttl_ms":1000,"metadata":{"k":"1","k":"2"}}`, 400},
		{"first half of a surrogate pair", name("x"), `{"owner_id":"a\ud800","ttl_ms":1000}`, 400},
		{"second half of one", name("x"), `{"owner_id":"a\uDFFF","ttl_ms":1000}`, 400},
		{"two first halves", name("x"), `{"owner_id":"\ud83d\ud83d\ude00","ttl_ms":1000}`, 400},
		{"half of one before another escape", name("x"), `{"owner_id":"\ud83d\n","ttl_ms":1000}`, 400},
		{"half of one in metadata", name("x"), `{"owner_id":"a","ttl_ms":1000,"metadata":{"\ud800":"x"}}`, 400},
		{"renewal with a token twice", "/v1/locks/x/renew", `{"owner_id":"a","lease_id":"i","fencing_token":1,"fencing_token":2,"ttl_ms":1000}`, 400},
		{"no UTF-8 in the body", name("x"), "{\"owner_id\":\"\xff\",\"ttl_ms\":1000}", 400},
		{"no owner", name("x"), `{"ttl_ms":1000}`, 400},
		{"owner that is a number", name("x"), `{"owner_id":1,"ttl_ms":1000}`, 400},
		{"long owner", name("x"), `{"owner_id":"` + strings.Repeat("o", 600) + `","ttl_ms":1000}`, 400},
		{"owner with NUL", name("x"), `{"owner_id":"a\u0000","ttl_ms":1000}`, 400},
		{"metadata too large", name("x"), `{"owner_id":"a","ttl_ms":1000,"metadata":{"k":"` + strings.Repeat("v", 5000) + `"}}`, 400},
		{"metadata of numbers", name("x"), `{"owner_id":"a","ttl_ms":1000,"metadata":{"k":1}}`, 400},
		{"no TTL", name("x"), `{"owner_id":"a"}`, 422},
		{"TTL 0", name("x"), `{"owner_id":"a","ttl_ms":0}`, 422},
		{"negative TTL", name("x"), `{"owner_id":"a","ttl_ms":-1}`, 422},
		{"long TTL", name("x"), `{"owner_id":"a","ttl_ms":86400001}`, 422},
		{"TTL that overflows a duration", name("x"), `{"owner_id":"a","ttl_ms":9223372036854775807}`, 422},
		{"TTL that wraps to a second", name("x"), `{"owner_id":"a","ttl_ms":18446744073710}`, 422},
		{"TTL that overflows", name("x"), `{"owner_id":"a","ttl_ms":92233720368547758070}`, 422},
		{"fractional TTL", name("x"), `{"owner_id":"a","ttl_ms":1000.5}`, 400},
		{"TTL with exponent", name("x"), `{"owner_id":"a","ttl_ms":1e3}`, 400},
		{"NaN", name("x"), `{"owner_id":"a","ttl_ms":NaN}`, 400},
		{"Infinity", name("x"), `{"owner_id":"a","ttl_ms":Infinity}`, 400},
		{"TTL that is a string", name("x"), `{"owner_id":"a","ttl_ms":"1000"}`, 400},
		{"negative delay", name("x"), `{"owner_id":"a","ttl_ms":1000,"lock_delay_ms":-1}`, 422},
		{"deep nesting", name("x"), `{"metadata":` + strings.Repeat("[", 20000), 400},
		{"too large", name("x"), `{"owner_id":"` + strings.Repeat("o", leaseserver.DefaultMaxBody) + `"}`, 413},
		{"wait without unit", name("x") + "?wait=10", validAcquire, 400},
		{"negative wait", name("x") + "?wait=-1s", validAcquire, 422},
		{"NaN wait", name("x") + "?wait=NaN", validAcquire, 400},
		{"wait that overflows", name("x") + "?wait=99999999999999h", validAcquire, 400},
		{"two waits", name("x") + "?wait=1s&wait=2s", validAcquire, 400},
		{"unknown parameter", name("x") + "?wiat=1s", validAcquire, 400},
		{"renewal with token 0", "/v1/locks/x/renew", `{"owner_id":"a","lease_id":"i","fencing_token":0,"ttl_ms":1000}`, 422},
		{"renewal with a negative token", "/v1/locks/x/renew", `{"owner_id":"a","lease_id":"i","fencing_token":-1,"ttl_ms":1000}`, 422},
		{"renewal with a token too great", "/v1/locks/x/renew", `{"owner_id":"a","lease_id":"i","fencing_token":9223372036854775808,"ttl_ms":1000}`, 422},
		{"renewal with a key", "/v1/locks/x/renew", `{"owner_id":"a","lease_id":"i","fencing_token":1,"ttl_ms":1000,"idempotency_key":"k"}`, 400},
		{"release without a lease", "/v1/locks/x/release", `{"owner_id":"a","fencing_token":1}`, 400},
		{"release with a long key", "/v1/locks/x/release", `{"owner_id":"a","lease_id":"i","fencing_token":1,"idempotency_key":"` + strings.Repeat("k", 513) + `"}`, 400},
	} {
		a := send(t, h, http.MethodPost, c.target, c.body)
		assert.Equal(t, c.status, a.status, "%s: %s", c.what, a.body)
		assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"), c.what)
	}
	for range store.List(t.Context(), lease.ListRequest{}) {
		assert.Fail(t, "something was stored")
	}
	assert.Equal(t, 405, send(t, h, http.MethodDelete, "/v1/locks/x", "").status)
	assert.Equal(t, 404, send(t, h, http.MethodGet, "/", "").status)
	assert.Equal(t, 415, send(t, h, http.MethodPost, name("x"), validAcquire, "Content-Type", "application/x-www-form-urlencoded").status)
}

func TestNamesThatLookOddAreLocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	for _, name := range []string{"a/b", "a b", "a+b", "a%2Fb", "?", "#", "é", "日本", "...", ".hidden", "a..b", strings.Repeat("n", lease.MaxName), "acquire"} {
		a := send(t, h, http.MethodPost, "/v1/locks/"+url.PathEscape(name)+"/acquire", validAcquire, "Content-Type", "application/json; charset=utf-8")
		assert.Equal(t, 200, a.status, "%q: %s", name, a.body)
		l := recordOf(t, servetest.Client(t, h, leasehttp.ClientConfig{}), name)
		assert.Equal(t, name, l.Name)
	}
}

func TestTheListComesInPages(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h, cl := served(t, leaseserver.Config{Store: store})
	const n = 1500
	for i := range n {
		acquire(t, store, servetest.Ask(fmt.Sprintf("job/%d", i), "a"))
	}
	var names []string
	for record, err := range cl.List(t.Context(), lease.ListRequest{}) {
		require.NoError(t, err)
		names = append(names, record.Name)
	}
	assert.Len(t, names, n)
	assert.IsNonDecreasing(t, names)
	page := send(t, h, http.MethodGet, "/v1/locks?limit=2&prefix=job/", "")
	assert.Contains(t, page.body, `"next":`)
	for record, err := range cl.List(t.Context(), lease.ListRequest{Limit: 1200}) {
		require.NoError(t, err)
		names = append(names, record.Name)
	}
	assert.Len(t, names, n+1200)
}

// FuzzHandlers sends anything to all routes: what is not granted is refused with a
// 4xx, and stored only if it was granted.
func FuzzHandlers(f *testing.F) {
	for _, body := range []string{validAcquire, `{"owner_id":"a","lease_id":"i","fencing_token":1,"ttl_ms":1000}`, `{"ttl_ms":NaN}`, `{"ttl_ms":-9e999}`, `{"owner_id":"\ud800"}`, ``, `null`, `{"metadata":{"":""}}`} {
		for _, name := range []string{"job", "", ".", "../x", "\x00", "\xff", "é", "a/b", strings.Repeat("n", 10<<10)} {
			for verb := range byte(5) {
				f.Add(verb, name, body, "")
			}
		}
	}
	f.Add(byte(0), "job", validAcquire, "wait=1ns")
	f.Add(byte(0), "job", validAcquire, "wait=-1h&x")
	f.Add(byte(4), "job", "", "limit=-1")
	f.Fuzz(func(t *testing.T, verb byte, name, body, query string) {
		store := leasetest.NewStore()
		s, err := leaseserver.New(leaseserver.Config{Store: store, AllowInsecure: true, MaxWait: 1})
		require.NoError(t, err)
		path, method := "/v1/locks/"+url.PathEscape(name), http.MethodPost
		switch verb % 5 {
		case 0, 1, 2:
			path += []string{"/acquire", "/renew", "/release"}[verb%5]
		case 3:
			method = http.MethodGet
		case 4:
			path, method = "/v1/locks", http.MethodGet
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		u.RawQuery = query
		r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
		r.URL = u
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		require.True(t, w.Code == 200 || w.Code >= 400 && w.Code < 500, "%d %s", w.Code, w.Body)
		stored := 0
		for range store.List(t.Context(), lease.ListRequest{}) {
			stored++
		}
		if verb%5 == 0 && w.Code == 200 {
			require.Equal(t, 1, stored)
			record := recordOf(t, store, name)
			require.Equal(t, name, record.Name)
		} else {
			require.Zero(t, stored)
		}
	})
}

func TestWhatIsWrongWithABodyIsSaid(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	for body, want := range map[string]string{
		`{"OWNER_ID":"a","ttl_ms":1000}`:                `unknown field`,
		`{"owner_id":"a","owner_id":"b","ttl_ms":1000}`: `comes twice`,
		`{"owner_id":"\udfff","ttl_ms":1000}`:           `surrogate`,
		`{"owner_id":["a"],"ttl_ms":1000}`:              `"owner_id cannot be a JSON array"`,
		`[]`:                                            `"the body cannot be a JSON array"`,
	} {
		a := send(t, h, http.MethodPost, "/v1/locks/x/acquire", body)
		assert.Equal(t, 400, a.status)
		assert.Contains(t, a.body, want)
	}
}

func TestEscapesThatSayOneThingOnlyAreTaken(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	for name, body := range map[string]string{
		"pair":      `{"owner_id":"\ud83d\ude00","ttl_ms":1000}`,
		"backslash": `{"owner_id":"\\ud800","ttl_ms":1000}`,
		"nested":    `{"owner_id":"a","ttl_ms":1000,"metadata":{"owner_id":"x","ttl_ms":"y"}}`,
		"escaped":   `{"owner\u005fid":"a","ttl_ms":1000}`,
	} {
		a := send(t, h, http.MethodPost, "/v1/locks/"+name+"/acquire", body)
		require.Equal(t, 200, a.status, a.body)
	}
	record := recordOf(t, store, "pair")
	assert.Equal(t, "😀", record.Holder)
}

func TestHeadIsAnsweredAsGetWithoutABody(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}})
	a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", validAcquire, "Authorization", "Bearer "+servetest.Token)
	require.Equal(t, 200, a.status)
	for _, path := range []string{"/v1/locks/job", "/v1/locks/never", "/v1/locks", "/v1/openapi.json", "/metrics", "/healthz", "/readyz", "/nowhere"} {
		for _, authorization := range []string{"", "Bearer " + servetest.Token} {
			get := send(t, h, http.MethodGet, path, "", "Authorization", authorization)
			head := send(t, h, http.MethodHead, path, "", "Authorization", authorization)
			assert.Equal(t, get.status, head.status, path)
			assert.Equal(t, get.header.Get("Content-Type"), head.header.Get("Content-Type"), path)
			assert.Empty(t, head.body, path)
		}
	}
	assert.Equal(t, 405, send(t, h, http.MethodHead, "/v1/locks/job/acquire", "").status)
}

func TestWhoHasShownNoTokenLearnsNoLeaseID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		config leaseserver.Config
		shown  bool
	}{
		{"no tokens", leaseserver.Config{}, false},
		{"everybody", leaseserver.Config{AllowInsecure: true}, false},
		{"the program decides", leaseserver.Config{Authorize: func(*http.Request) error { return nil }}, false},
		{"a token", leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			_, h := servetest.Serve(t, c.config)
			cl := servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token})
			l := acquire(t, cl, servetest.Ask("job", "a"))
			for _, path := range []string{"/v1/locks/job", "/v1/locks", "/metrics"} {
				a := send(t, h, http.MethodGet, path, "", "Authorization", "Bearer "+servetest.Token)
				require.Equal(t, 200, a.status)
				if path != "/metrics" {
					assert.Contains(t, a.body, `"owner_id":"a"`)
					assert.Equal(t, c.shown, strings.Contains(a.body, l.ID), path)
					continue
				}
				assert.NotContains(t, a.body, l.ID)
			}
			a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", validAcquire, "Authorization", "Bearer "+servetest.Token)
			assert.Equal(t, 409, a.status)
			assert.NotContains(t, a.body, l.ID)
			require.NoError(t, cl.Release(t.Context(), l.Claim), "its holder knows it")
		})
	}
}

// What net/http cannot read as a request never reaches a route: it answers in plain
// text, and ends the connection.
func TestWhatIsNoRequestIsAnsweredWithItsStatusAndCutOff(t *testing.T) {
	t.Parallel()
	s := run(t, leaseserver.Config{Store: leasetest.NewStore()})
	for request, status := range map[string]string{
		"garbage\r\n\r\n":                                   "HTTP/1.1 400 ",
		"GET /v1/locks HTTP/1.1\r\n\r\n":                    "HTTP/1.1 400 ", // no Host
		"GET /v1/locks HTTP/9.1\r\nHost: localhost\r\n\r\n": "HTTP/1.1 505 ",
		"GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n": "HTTP/1.1 431 ",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(servetest.Bound)))
		_, _ = io.WriteString(conn, request)
		head := make([]byte, len(status))
		_, err = io.ReadFull(conn, head)
		require.NoError(t, err)
		assert.Equal(t, status, string(head))
		_, _ = io.Copy(io.Discard, conn) // it ends
		require.NoError(t, conn.Close())
	}
}

func TestAnAnswerHasTheIDOfItsRequest(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}})
	for authorization, status := range map[string]int{"": 401, "Bearer " + servetest.Token: 404} {
		for id, want := range map[string]string{"": "", "7": "7", strings.Repeat("x", 64): strings.Repeat("x", 64), strings.Repeat("x", 65): ""} {
			a := send(t, h, http.MethodGet, "/v1/locks/never", "", "Authorization", authorization, "Pglatch-Request-Id", id)
			assert.Equal(t, status, a.status)
			assert.Equal(t, want, a.header.Get("Pglatch-Request-Id"))
		}
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

// A server cannot distinguish a client that ends its side of the connection from one that hung up. The client holds
// nothing, and its answer gives the reason.
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
