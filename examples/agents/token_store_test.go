package agents_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

const (
	firstToken  = "first-0123456789"
	secondToken = "second-012345678"
)

// status sends a request with headers, and returns the status of the answer.
func (r *replica) status(method, path string, headers ...string) int {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, strings.NewReader(`{"session_id": "s"}`))
	require.NoError(r.t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	response, err := r.server.Client().Do(request)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	return response.StatusCode
}

// routes has one route of each kind.
var routes = map[string]string{"/api/advisory-locks": http.MethodGet, "/hook/status": http.MethodGet, "/hook/session-start": http.MethodPost}

func TestWithTokensEveryRequestNeedsOne(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Tokens: []string{firstToken, secondToken}})
	for path, method := range routes {
		for _, headers := range [][]string{
			nil, {"Authorization: Bearer "}, {"Authorization: Bearer " + firstToken + "x"}, {"Authorization: " + firstToken}, {"Authorization: Basic " + firstToken},
		} {
			assert.Equal(t, http.StatusUnauthorized, a.status(method, path, headers...), "%s %q", path, headers)
		}
		for _, token := range []string{firstToken, secondToken} {
			assert.Equal(t, http.StatusOK, a.status(method, path, "Authorization: Bearer "+token), path)
			assert.Equal(t, http.StatusOK, a.status(method, path, "Authorization: bearer "+token, "Host: locks.example", "X-Forwarded-For: 10.0.0.1"), path)
		}
	}
}

func TestWithoutTokensOnlyThisHostIsAnswered(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	for path, method := range routes {
		assert.Equal(t, http.StatusOK, a.status(method, path), path)
		assert.Equal(t, http.StatusForbidden, a.status(method, path, "X-Forwarded-For: 10.0.0.1"), path)
		assert.Equal(t, http.StatusForbidden, a.status(method, path, "Host: rebound.example"), path)
	}
}

func TestTokensAreReplacedWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	a := start(t, agents.Config{DSN: pgtest.DSN(t), Tokens: []string{firstToken}})
	old, next := "Authorization: Bearer "+firstToken, "Authorization: Bearer "+secondToken
	for _, wrong := range [][]string{nil, {"short"}} {
		require.Error(t, a.ReplaceTokens(wrong))
		assert.Equal(t, http.StatusOK, a.status(http.MethodGet, "/hook/status", old), "nothing changes")
		assert.Equal(t, http.StatusUnauthorized, a.status(http.MethodGet, "/hook/status"))
	}
	require.NoError(t, a.ReplaceTokens([]string{secondToken}))
	assert.Equal(t, http.StatusUnauthorized, a.status(http.MethodGet, "/hook/status", old))
	assert.Equal(t, http.StatusOK, a.status(http.MethodGet, "/hook/status", next))
}

// An elsewhere is a listener that claims an address that other hosts can reach. It does not
// really have one, so that the test lets nobody in.
type elsewhere struct{ net.Listener }

func (elsewhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 8080} }

func TestAnAddressThatOthersReachIsRefusedWithoutTokens(t *testing.T) {
	t.Parallel()
	app, err := agents.Open(t.Context(), agents.Config{DSN: pgtest.DSN(t)})
	require.NoError(t, err)
	defer app.Close()
	listen := func() net.Listener {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return listener
	}
	open := listen()
	ctx, cancel := context.WithTimeout(t.Context(), patience) // ends a Serve that does not refuse
	defer cancel()
	err = app.Serve(ctx, elsewhere{open})
	require.ErrorContains(t, err, "other hosts can reach 0.0.0.0:8080, and there are no tokens: set Config.Tokens")
	_, err = open.Accept()
	require.ErrorIs(t, err, net.ErrClosed)

	require.NoError(t, app.ReplaceTokens([]string{firstToken}))
	ended := listen()
	require.NoError(t, ended.Close())
	err = app.Serve(t.Context(), elsewhere{ended})
	require.ErrorIs(t, err, net.ErrClosed, "control: with tokens it gets as far as serving")

	_, err = agents.Open(t.Context(), agents.Config{DSN: pgtest.DSN(t), Tokens: []string{"short"}})
	require.ErrorContains(t, err, "token 1 has 5 bytes")
}
