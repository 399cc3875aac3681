package leaseserver_test

import (
	"context"
	"errors"
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
	"github.com/pglatch/pglatch/lease/leasetest"
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
	s, h, client := served(t, leaseserver.Config{TTLPolicies: policies})
	held := acquire(t, client, lease.AcquireRequest{Name: "jobs/x", Holder: "a", TTL: time.Minute})
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
	_, err := client.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Hour})
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

// A single store renews no batches. Renewals of some names go wrong.
type single struct{ lease.Store }

func (s *single) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	switch r.Name {
	case "jobs/panics":
		panic("a bug of the store")
	case "jobs/fails":
		return lease.Lease{}, errors.New("the network is gone")
	}
	return s.Store.Renew(ctx, r)
}

// renewals asks for the renewal of all, by a token, and returns what the answers say.
func renewals(t *testing.T, c leaseserver.Config, token string, all []lease.RenewRequest) []lease.RenewResult {
	t.Helper()
	_, h := servetest.Serve(t, c)
	results, err := servetest.Client(t, h, leasehttp.ClientConfig{Token: token, Resends: -1}).RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, results, len(all))
	return results
}

func TestEachRenewalOfManyIsAnsweredByItself(t *testing.T) {
	t.Parallel()
	for _, batch := range []bool{true, false} {
		store := leasetest.NewStore()
		var all []lease.RenewRequest
		for i := range 100 {
			l := acquire(t, store, lease.AcquireRequest{Name: fmt.Sprint("jobs/", i), Holder: "a", TTL: servetest.Long})
			all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
		}
		all[3].ID, all[5].Name, all[7].Name, all[9].Name = "stale", "jobs/never", "others/x", "../x"
		c := leaseserver.Config{Store: store, Tokens: tokensOfAll}
		if !batch {
			all[11].Name, all[13].Name = "jobs/panics", "jobs/fails"
			c.Store = &single{store}
		}
		results := renewals(t, c, tokenOfJobs, all)
		require.ErrorIs(t, results[3].Err, lease.ErrStale)
		require.ErrorIs(t, results[5].Err, lease.ErrNotFound)
		require.ErrorIs(t, results[7].Err, leasehttp.ErrDenied)
		require.ErrorIs(t, results[9].Err, lease.ErrInvalid)
		for i, r := range results {
			if i < 10 && i%2 == 1 && i > 1 {
				continue
			}
			if !batch && (i == 11 || i == 13) {
				require.Error(t, r.Err)
				require.NotErrorIs(t, r.Err, lease.ErrBusy, "the outcome is not known")
				continue
			}
			require.NoError(t, r.Err)
			assert.Equal(t, all[i].Claim, r.Lease.Claim)
			assert.Greater(t, r.Lease.Remaining, servetest.Long)
		}
	}
}

func TestRenewalsOfManyKeepToThePoliciesOfTheirNames(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	var all []lease.RenewRequest
	for _, name := range []string{"jobs/x", "jobs/long/x", "x"} {
		l := acquire(t, store, servetest.Ask(name, "a"))
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
	}
	results := renewals(t, leaseserver.Config{Store: store, TTLPolicies: policies}, "", all)
	require.ErrorIs(t, results[0].Err, lease.ErrInvalid)
	require.NoError(t, results[1].Err)
	require.ErrorIs(t, results[2].Err, lease.ErrInvalid)
}
