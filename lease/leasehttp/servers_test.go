package leasehttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// answering is a server that answers each request in the same way, and counts them.
func answering(t *testing.T, status int, mediaType, body string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func problemOf(typ string) string { return `{"type":"` + typ + `","title":"x","field":"TTL"}` }

func TestAClientGoesOnWithTheNextServerOnlyIfItCanKnowBetter(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status          int
		mediaType, body string
		moves           bool
	}{
		"a proxy without a server":  {502, "text/html", "<p>bad gateway", true},
		"a proxy without servers":   {503, "text/plain", "no upstream", true},
		"a proxy that waited":       {504, "text/plain", "", true},
		"another server":            {404, "text/html", "", true},
		"half an answer":            {200, wire.JSONType, `{"lock":`, true},
		"a store that is away":      {503, problem, problemOf(wire.TypeUnavailable), true},
		"a store that is not ready": {503, problem, problemOf(wire.TypeNotReady), true},
		"a server that ends":        {503, problem, problemOf(wire.TypeBusy), true},
		"a panic":                   {500, problem, problemOf(wire.TypeInternal), true},
		"a lock that is held":       {409, problem, problemOf(wire.TypeHeld), false},
		"a bad request":             {400, problem, problemOf(wire.TypeInvalid), false},
		"no right":                  {403, problem, problemOf(wire.TypeForbidden), false},
		"no token":                  {401, problem, problemOf(wire.TypeUnauthorized), false},
		"too many requests":         {429, problem, problemOf(wire.TypeRateLimited), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, good := servetest.Serve(t, leaseserver.Config{})
			bad, asked := answering(t, c.status, c.mediaType, c.body)
			cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{bad, good.URL}})
			_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			assert.Equal(t, c.moves, err == nil, "%v", err)
			_, err = cl.Acquire(t.Context(), servetest.Ask("another", "a"))
			assert.Equal(t, c.moves, err == nil, "%v", err)
			if c.moves {
				assert.Equal(t, int64(1), asked.Load(), "it stays where it got an answer")
			}
		})
	}
}

func TestSendingsAreBoundedWhenNoServerAnswers(t *testing.T) {
	t.Parallel()
	var urls []string
	var all []*atomic.Int64
	for range 5 {
		url, asked := answering(t, 502, "text/plain", "")
		urls, all = append(urls, url), append(all, asked)
	}
	for resends, want := range map[int]int64{-1: 1, 0: 5, 9: 10} { // never, the default is less than the servers, twice each
		cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: urls, Resends: resends})
		_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
		require.ErrorContains(t, err, "outcome unknown")
		sum := int64(0)
		for _, asked := range all {
			sum += asked.Swap(0)
		}
		assert.Equal(t, want, sum, resends)
	}
}

func TestWithoutResendsTheNextRequestGoesToTheNextServer(t *testing.T) {
	t.Parallel()
	_, good := servetest.Serve(t, leaseserver.Config{})
	bad, asked := answering(t, 502, "text/plain", "")
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{bad, good.URL}, Resends: -1})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	_, err = cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	assert.Equal(t, int64(1), asked.Load())
}

// That the second server was not asked, because it was too busy, says nothing of what the
// first one did.
func TestABusyServerAfterALostAnswerIsNoRefusal(t *testing.T) {
	t.Parallel()
	lost, _ := answering(t, 502, "text/plain", "")
	busy, _ := answering(t, 503, "application/problem+json", problemOf(wire.TypeBusy))
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{lost, busy}, Resends: 1})
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.Error(t, err)
	require.NotErrorIs(t, err, lease.ErrBusy)
	alone := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{busy, busy}, Resends: 1})
	_, err = alone.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorIs(t, err, lease.ErrBusy, "nothing was done anywhere")
}
