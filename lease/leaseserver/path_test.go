package leaseserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// sendRaw sends a target as it is. A client of net/http would escape it.
func sendRaw(tb testing.TB, h *httptest.Server, method, target, body string, header ...string) answer {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", h.Listener.Addr().String())
	require.NoError(tb, err)
	defer conn.Close()
	require.NoError(tb, conn.SetDeadline(time.Now().Add(servetest.Bound)))
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, target, len(body))
	require.NoError(tb, err)
	for i := 0; i < len(header); i += 2 {
		_, err = fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
		require.NoError(tb, err)
	}
	_, err = io.WriteString(conn, "\r\n"+body)
	require.NoError(tb, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	require.NoError(tb, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return answer{response.StatusCode, response.Header, string(data)}
}

func TestThePathNamesTheLockHoweverItIsEscaped(t *testing.T) {
	t.Parallel()
	for target, name := range map[string]string{
		"/v1/locks/job/acquire":                        "job",
		"/v1/locks/%6a%6Fb/acquire":                    "job",
		"/v1/locks/a%20b/acquire":                      "a b",
		"/v1/locks/a+b/acquire":                        "a+b",
		"/v1/locks/a%2Fb/acquire":                      "a/b",
		"/v1/locks/a%2fb%20c/acquire":                  "a/b c",
		"/v1/locks/a%2F%2Fb/acquire":                   "a//b",
		"/v1/locks/%2F/acquire":                        "/",
		"/v1/locks/%2Fa%2F/acquire":                    "/a/",
		"/v1/locks/a%252Fb/acquire":                    "a%2Fb",
		"/v1/locks/.../acquire":                        "...",
		"/v1/locks/acquire/acquire":                    "acquire",
		"/v1/locks/{lock}/acquire":                     "{lock}",
		"/v1/locks/%7Block%7D/acquire":                 "{lock}",
		"/v1/locks/a|b/acquire":                        "a|b",
		"/v1/locks/a|b%2Fc/acquire":                    "a|b/c",
		"/v1/locks/x|%2Facquire/acquire":               "x|/acquire",
		"/v1/locks/\u00e9%2Fb/acquire":                 "\u00e9/b",
		"http://localhost/v1/locks/a%2Fb/acquire":      "a/b",
		"/v1/locks/a%2Fb/acquire?wait=1ms":             "a/b",
		"/v1/locks/%C3%A9/acquire":                     "\u00e9",
		"/v1/locks/a;b=c,d:@!$&'()*/acquire":           "a;b=c,d:@!$&'()*",
		"/v1/locks/-%2F..%2F-/acquire":                 "", // the empty ones are refused
		"/v1/locks//acquire":                           "",
		"/v1/locks/./acquire":                          "",
		"/v1/locks/../acquire":                         "",
		"/v1/locks/%2e%2E/acquire":                     "",
		"/v1/locks/.%2e/acquire":                       "",
		"/v1/locks/..%2F..%2Fv1%2Flocks%2Fjob/acquire": "",
		"/v1/locks/\u00e9%2F..%2Fb/acquire":            "",
		"/v1/locks/a%00/acquire":                       "",
		"http://localhost/v1/locks/%2E%2E/acquire":     "",
	} {
		store := leasetest.NewStore()
		_, h := servetest.Serve(t, leaseserver.Config{Store: store})
		a := sendRaw(t, h, http.MethodPost, target, validAcquire)
		var stored []string
		for r := range store.List(t.Context(), lease.ListRequest{}) {
			stored = append(stored, r.Name)
		}
		if name == "" {
			assert.Equal(t, http.StatusBadRequest, a.status, "%s: %s", target, a.body)
			assert.Contains(t, a.body, `"field":"lock"`, target)
			assert.Empty(t, stored, target)
			continue
		}
		assert.Equal(t, http.StatusOK, a.status, "%s: %s", target, a.body)
		assert.Equal(t, []string{name}, stored, target)
	}
}

func TestAPathIsNeitherCleanedNorRedirected(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	for _, target := range []string{
		"/", "//", "/v1", "/v1/locks/", "//v1/locks", "/v1//locks", "/v1/./locks", "/v1/x/../locks", "/v1/locks/x/", "/v1/locks/x/.", "/v1/locks/x/..", "/v1/locks/x/../y", "/v1/locks/a//b", "/metrics/", "/./metrics",
		"/v1/locks/job/acquire/", "/v1/locks//job/acquire", "/v1/locks/job//acquire", "/v1/locks/job/./acquire", "/v1/locks/x/../job/acquire", "/v1/locks/./job/acquire", "/v1/../v1/locks/job/acquire", "//v1/locks/job/acquire",
		"/v1/%6Cocks", "/v1/%6Cocks/job/acquire", "/v1%2Flocks/job/acquire", "/v1/locks%2Fjob/acquire", "/v1/locks/job/acquir%65", "/v1/locks/job/acquire%2F", "/v1/locks/job%2Facquire/", "/v1/locks/a|b%2Fc/acquir%65", "/%6Detrics",
		"http://elsewhere.example", "http://elsewhere.example/v1//locks", "*",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			a := sendRaw(t, h, method, target, validAcquire)
			assert.Equal(t, http.StatusNotFound, a.status, "%s %s: %s", method, target, a.body)
			assert.Contains(t, a.body, "no-such-route", "%s %s", method, target)
			assert.Empty(t, a.header.Get("Location"))
		}
	}
	for range store.List(t.Context(), lease.ListRequest{}) {
		assert.Fail(t, "something was stored")
	}
}

func TestEachRouteHasOneMethodAndNamesIt(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token}}})
	for target, allow := range map[string]string{
		"/v1/locks/job/acquire":     "OPTIONS, POST",
		"/v1/locks/a%2Fb/acquire":   "OPTIONS, POST",
		"/v1/locks/%2F/release":     "OPTIONS, POST",
		"/v1/locks/../renew":        "OPTIONS, POST",
		"/v1/locks/x/adopt":         "OPTIONS, POST",
		"/v1/locks/x/force-release": "OPTIONS, POST",
		"/v1/batch":                 "OPTIONS, POST",
		"/v1/locks/job":             "OPTIONS, GET, HEAD",
		"/v1/locks/x|%2Facquire":    "OPTIONS, GET, HEAD",
		"/v1/locks/..":              "OPTIONS, GET, HEAD",
		"/v1/locks":                 "OPTIONS, GET, HEAD",
		"/v1/openapi.json":          "OPTIONS, GET, HEAD",
		"/metrics":                  "OPTIONS, GET, HEAD",
		"/healthz":                  "OPTIONS, GET, HEAD",
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodConnect, "ANY", http.MethodOptions} {
			a := sendRaw(t, h, method, target, "")
			assert.Equal(t, allow, a.header.Get("Allow"), "%s %s", method, target)
			if method == http.MethodOptions {
				assert.Equal(t, http.StatusNoContent, a.status, target)
				continue
			}
			assert.Equal(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, target)
			assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			assert.Contains(t, a.body, "method-not-allowed")
		}
	}
}

// A token's prefix counts for the name of the lock, not for how the path looks.
func TestAPrefixHoldsForTheNameHoweverItIsEscaped(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token, Prefix: "team/"}}})
	for target, status := range map[string]int{
		"/v1/locks/team%2Fx":           http.StatusNotFound, // no such lock
		"/v1/locks/%74eam%2fx":         http.StatusNotFound,
		"/v1/locks/team%2F|%2Fx":       http.StatusNotFound,
		"/v1/locks/team%252Fx":         http.StatusForbidden,
		"/v1/locks/other%2Fteam%2Fx":   http.StatusForbidden,
		"/v1/locks/%2F":                http.StatusForbidden,
		"/v1/locks/|%2F":               http.StatusForbidden,
		"/v1/locks/team%2F..%2Fsecret": http.StatusBadRequest,
		"/v1/locks/..":                 http.StatusBadRequest,
	} {
		a := sendRaw(t, h, http.MethodGet, target, "", "Authorization", "Bearer "+servetest.Token)
		assert.Equal(t, status, a.status, "%s: %s", target, a.body)
		assert.Equal(t, http.StatusUnauthorized, sendRaw(t, h, http.MethodGet, target, "").status, target)
	}
}

func TestAuthorizeSeesTheSameLockInPathAndPathValue(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	_, h := servetest.Serve(t, leaseserver.Config{Authorize: func(r *http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Pattern+" "+r.PathValue("lock")+" "+r.URL.Path)
		return nil
	}})
	for _, target := range []string{"/v1/locks/job/acquire", "/v1/locks/a%2Fb/acquire", "/v1/locks/../acquire"} {
		sendRaw(t, h, http.MethodPost, target, validAcquire)
	}
	sendRaw(t, h, http.MethodPost, "/v1/batch", `{"operations":[{"acquire":{"lock":"c/d","owner_id":"a","ttl_ms":60000}}]}`)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{
		"POST /v1/locks/{lock}/acquire job /v1/locks/job/acquire",
		"POST /v1/locks/{lock}/acquire a/b /v1/locks/a/b/acquire",
		"POST /v1/locks/{lock}/acquire .. /v1/locks/../acquire",
		"POST /v1/batch  /v1/batch",
		"POST /v1/locks/{lock}/acquire c/d /v1/locks/c/d/acquire",
	}, seen)
}

func TestAForwardedRequestNamesTheSameLock(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	for target, name := range map[string]string{
		"/v1/locks/a%2Fb%20c": "a/b c", "/v1/locks/%2F": "/", "/v1/locks/a%252Fb": "a%2Fb", "/v1/locks/a|b": "a|b", "/v1/locks/a|b%2Fc": "a|b/c", "/v1/locks/\u00e9%2Facquire": "\u00e9/acquire",
	} {
		before := forwarded(t, peers[1], "answered")
		a := sendRaw(t, peers[1].HTTP, http.MethodPost, target+"/acquire", validAcquire)
		assert.Equal(t, http.StatusOK, a.status, "%s: %s", target, a.body)
		assert.Equal(t, before+1, forwarded(t, peers[1], "answered"), target)
		record, err := peers[0].Client.Get(t.Context(), name)
		require.NoError(t, err, target)
		assert.Equal(t, name, record.Name)
	}
}

// A panicking is a store that panics when it is read.
type panicking struct{ lease.Store }

func (panicking) Get(context.Context, string) (lease.Record, error) { panic("a bug") }

func TestAPanicIsLoggedAndAnsweredWithAProblem(t *testing.T) {
	t.Parallel()
	var log capture.Text
	_, h := servetest.Serve(t, leaseserver.Config{Store: panicking{leasetest.NewStore()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	targets := []string{"/v1/locks/job", "/v1/locks/%2F", "/readyz"}
	for _, target := range targets {
		a := sendRaw(t, h, http.MethodGet, target, "")
		assert.Equal(t, http.StatusInternalServerError, a.status, target)
		assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"), target)
		assert.NotContains(t, a.body, "a bug", target)
	}
	assert.Equal(t, len(targets), strings.Count(log.String(), `msg=handler_panicked panic="a bug"`))
	assert.Equal(t, 2, strings.Count(log.String(), "msg=request_failed path=/v1/locks/{lock} "))
	assert.Equal(t, 1, strings.Count(log.String(), "msg=request_failed path=/readyz "))
}
