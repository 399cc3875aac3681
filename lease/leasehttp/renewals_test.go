package leasehttp_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

type acquirer interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
}

// held acquires leases with long names, and returns requests to renew them.
func held(t *testing.T, store acquirer, n int) []lease.RenewRequest {
	t.Helper()
	var all []lease.RenewRequest
	for i := range n {
		l, err := store.Acquire(t.Context(), servetest.Ask(fmt.Sprintf("%0300d", i), "a"))
		require.NoError(t, err)
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
	}
	return all
}

func requireRenewed(t *testing.T, cl *leasehttp.Client, all []lease.RenewRequest) {
	t.Helper()
	results, err := cl.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, results, len(all))
	for i, r := range results {
		require.NoError(t, r.Err)
		require.Equal(t, all[i].Claim, r.Lease.Claim)
		require.Greater(t, r.Lease.Remaining, servetest.Long)
	}
}

func TestManyRenewalsGoInFewRequestsThatTheServerTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		all := held(t, f.store, 600)
		f.breaks(nil)
		requireRenewed(t, f.client, all)
		assert.Equal(t, map[string]int{"batch": 2}, f.sent, "600 of some 450 bytes, in bodies of 192 KiB")
	})
}

// Renewals whose answers are lost are sent again.
func TestRenewalsWhoseAnswersAreLostAreSentAgain(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	all := held(t, cl, 50)
	transport.sent, transport.lose = nil, 2
	requireRenewed(t, cl, all)
}

func TestAnAnswerToOtherRenewalsIsNone(t *testing.T) {
	t.Parallel()
	all := held(t, leasetest.NewStore(), 2)
	other := `{"status":200,"lease":{"lock":"x","owner_id":"a","lease_id":"x","fencing_token":1,"ttl_remaining_ms":1000}}`
	for _, body := range []string{`{"results":[]}`, `{"results":[` + other + `]}`, `{"results":[` + other + `,{}]}`} {
		url, _ := answering(t, 200, wire.JSONType, body)
		results, err := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1}).RenewAll(t.Context(), all)
		require.NoError(t, err)
		require.Len(t, results, 2)
		for _, r := range results {
			require.Error(t, r.Err)
			require.NotErrorIs(t, r.Err, lease.ErrStale)
		}
	}
}
