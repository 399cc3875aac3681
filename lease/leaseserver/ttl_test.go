package leaseserver_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

var policies = []leaseserver.TTLPolicy{
	{Max: time.Hour},
	{Prefix: "jobs/", Min: time.Minute, Max: 10 * time.Minute, Default: 2 * time.Minute},
	{Prefix: "jobs/long/", Max: 12 * time.Hour},
}

func TestTheLongestPrefixSaysWhatTTLsAreGranted(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{TTLPolicies: policies})
	for i, c := range []struct {
		prefix, ttl string // as JSON
		status      int
		says        string
	}{
		{"a", `,"ttl_ms":3600000`, 200, `"ttl_remaining_ms":3600000`},
		{"a", `,"ttl_ms":3600001`, 422, "ttl_ms is 1h0m0.001s: use 10ms to 1h0m0s"},
		{"a", ``, 422, "ttl_ms is missing or 0"},
		{"job", `,"ttl_ms":10`, 200, `"lease_id"`},
		{"jobs%2F", `,"ttl_ms":59999`, 422, `use 1m0s to 10m0s, which is the policy for names that begin with \"jobs/\"`},
		{"jobs%2F", `,"ttl_ms":60000`, 200, `"ttl_remaining_ms":60000`},
		{"jobs%2F", `,"ttl_ms":600000`, 200, `"ttl_remaining_ms":600000`},
		{"jobs%2F", `,"ttl_ms":600001`, 422, "problems/out-of-range"},
		{"jobs%2F", `,"ttl_ms":-1`, 422, "problems/out-of-range"},
		{"jobs%2F", ``, 200, `"ttl_remaining_ms":120000`},
		{"jobs%2F", `,"ttl_ms":0`, 200, `"ttl_remaining_ms":120000`},
		{"jobs%2Flong%2F", `,"ttl_ms":43200000`, 200, `"ttl_remaining_ms":43200000`},
		{"jobs%2Flong%2F", ``, 422, "problems/out-of-range"},
	} {
		target := fmt.Sprintf("/v1/locks/%s%d", c.prefix, i)
		got := send(t, h, http.MethodPost, target+"/acquire", `{"owner_id":"a"`+c.ttl+`}`)
		assert.Equal(t, c.status, got.status, "%d: %s", i, got.body)
		assert.Contains(t, got.body, c.says, i)
		if c.status != http.StatusOK {
			assert.Equal(t, 404, send(t, h, http.MethodGet, target, "").status, "%d: a lease that was refused is none", i)
		}
	}
}

func TestARenewalKeepsToTheTTLsOfItsPrefixToo(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{TTLPolicies: policies})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := client.Acquire(t.Context(), lease.AcquireRequest{Name: "jobs/x", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	claim := fmt.Sprintf(`{"owner_id":"a","lease_id":%q,"fencing_token":%d`, held.ID, held.Token)
	renew := func(ttl string) answer {
		return send(t, h, http.MethodPost, "/v1/locks/jobs%2Fx/renew", claim+ttl+"}")
	}
	got := renew(`,"ttl_ms":600001`)
	assert.Equal(t, 422, got.status, got.body)
	assert.Contains(t, got.body, "use 1m0s to 10m0s")
	got = renew("")
	assert.Equal(t, 200, got.status, got.body)
	assert.Contains(t, got.body, `"ttl_remaining_ms":120000`, "what was left out is the default")
	_, err = client.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Hour})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "TTL is 1h0m0s: use 1m0s to 10m0s")

	for _, bad := range [][]leaseserver.TTLPolicy{{{Max: -1}}, {{Min: time.Hour, Max: time.Minute}}, {{Max: 2 * lease.MaxTTL}}, {{Default: time.Nanosecond}}, {{}, {}}} {
		require.Error(t, s.SetTTLPolicies(bad))
		require.Equal(t, 422, renew(`,"ttl_ms":600001`).status, "what was is kept")
	}
	require.NoError(t, s.SetTTLPolicies([]leaseserver.TTLPolicy{{Max: 20 * time.Minute}}))
	got = renew(`,"ttl_ms":600001`)
	assert.Equal(t, 200, got.status, got.body)
	require.NoError(t, s.SetTTLPolicies(nil))
	assert.Equal(t, 200, renew(`,"ttl_ms":86400000`).status)
	assert.Equal(t, 422, renew("").status)
}
