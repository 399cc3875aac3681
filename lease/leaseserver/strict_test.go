package leaseserver_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

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
	record, err := store.Get(t.Context(), "pair")
	require.NoError(t, err)
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
			l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			require.NoError(t, err)
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
