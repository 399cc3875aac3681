package leaseserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
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
		{http.MethodPost, "/v1/renewals", `{}`, "admin hold jobs"},
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
	held, err := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfHolder}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
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
