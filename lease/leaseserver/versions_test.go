package leaseserver_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
)

// besideAnother returns a server that forwards to the active one through a handler, which makes that a server of another version.
func besideAnother(t *testing.T, version func(active http.Handler) http.Handler) (forwards servetest.Peer) {
	t.Helper()
	peers := newPeers(t, 2, -1)
	active := version(peers[0].Server.Handler())
	var asked atomic.Bool
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/locks/job" {
			asked.Store(true)
		}
		active.ServeHTTP(w, r)
	}))
	peers[0].Server.Configure(other.Config)
	other.Start()
	t.Cleanup(other.Close)
	peers[1].Election.Believe(other.URL)
	await.Until(t, servetest.Bound, func() bool { // until then the one behind it may be asked
		send(t, peers[1].HTTP, http.MethodGet, "/v1/locks/job", "")
		return asked.Load()
	})
	return peers[1]
}

// The next version knows a field more in requests and answers, a header and a route. A server that forwards to it hides none of them but
// the route.
func TestAServerForwardsWhatOnlyTheNextVersionKnows(t *testing.T) {
	t.Parallel()
	p := besideAnother(t, func(active http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			body = bytes.Replace(body, []byte(`"next_option":1,`), nil, 1)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			recorded := httptest.NewRecorder()
			active.ServeHTTP(recorded, r)
			maps.Copy(w.Header(), recorded.Header())
			w.Header().Set("Pglatch-Next", "1")
			w.WriteHeader(recorded.Code)
			if recorded.Code != http.StatusNoContent {
				_, _ = io.WriteString(w, strings.Replace(recorded.Body.String(), "{", `{"next_field":1,`, 1))
			}
		})
	})
	const path = "/v1/locks/new/acquire"
	a := send(t, p.HTTP, http.MethodPost, path, `{"next_option":1,"owner_id":"a","ttl_ms":60000}`)
	require.Equal(t, 200, a.status, a.body)
	assert.Equal(t, "1", a.header.Get("Pglatch-Next"))
	assert.Contains(t, a.body, `"next_field":1`)
	a = send(t, p.HTTP, http.MethodPost, path, `{"next_option":1,"owner_id":"b","ttl_ms":60000}`)
	require.Equal(t, 409, a.status)
	assert.Contains(t, a.body, `"next_field":1`)
	assert.Equal(t, 404, send(t, p.HTTP, http.MethodGet, "/v1/next", "").status)
	l, err := p.Client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err, "a client of this version does not need to know them")
	require.NoError(t, p.Client.Release(t.Context(), l.Claim))
}

// An earlier version has no batches. The calls of a client that asks it through a server of this version are answered all the same.
func TestAClientGoesOnWhileTheActiveServerIsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	var batches atomic.Int64
	p := besideAnother(t, func(active http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/batch" {
				active.ServeHTTP(w, r)
				return
			}
			batches.Add(1)
			w.Header().Set("Content-Type", problem.MediaType)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"type":"%sno-such-route","title":"No such route","status":404}`, problem.TypeBase)
		})
	})
	for round := 0; batches.Load() == 0 && round < 100; round++ {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				l, err := p.Client.Acquire(t.Context(), servetest.Ask(fmt.Sprintf("job %d %d", round, i), "a"))
				if assert.NoError(t, err) {
					assert.NoError(t, p.Client.Release(t.Context(), l.Claim))
				}
			})
		}
		wg.Wait()
	}
	assert.Positive(t, batches.Load())
	assert.Zero(t, forwarded(t, p, "failed"))
}
