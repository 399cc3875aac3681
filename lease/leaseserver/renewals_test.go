package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A single store renews no batches. Renewals of some names go wrong.
type single struct {
	lease.Store
	under, most atomic.Int64
}

func (s *single) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	now := s.under.Add(1)
	defer s.under.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
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
			l, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: fmt.Sprint("jobs/", i), Holder: "a", TTL: servetest.Long})
			require.NoError(t, err)
			all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
		}
		all[3].ID, all[5].Name, all[7].Name, all[9].Name = "stale", "jobs/never", "others/x", "../x"
		c := leaseserver.Config{Store: store, Tokens: tokensOfAll}
		spy := &single{Store: store}
		if !batch {
			all[11].Name, all[13].Name = "jobs/panics", "jobs/fails"
			c.Store = spy
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
		assert.LessOrEqual(t, spy.most.Load(), int64(16))
	}
}

func TestRenewalsOfManyKeepToThePoliciesOfTheirNames(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	var all []lease.RenewRequest
	for _, name := range []string{"jobs/x", "jobs/long/x", "x"} {
		l, err := store.Acquire(t.Context(), servetest.Ask(name, "a"))
		require.NoError(t, err)
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: 2 * servetest.Long})
	}
	results := renewals(t, leaseserver.Config{Store: store, TTLPolicies: policies}, "", all)
	require.ErrorIs(t, results[0].Err, lease.ErrInvalid)
	require.NoError(t, results[1].Err)
	require.ErrorIs(t, results[2].Err, lease.ErrInvalid)
}
