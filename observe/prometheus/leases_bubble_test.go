package prometheus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestRequestsForLeasesAreCountedByTheLockServersResults(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		store := s.metrics.Store(leasetest.NewStore())
		request := lease.AcquireRequest{Name: "report", Holder: "a", TTL: time.Second}
		l, err := store.Acquire(s.Context(), request)
		require.NoError(s, err)
		_, err = store.Acquire(s.Context(), lease.AcquireRequest{Name: "report", Holder: "b", TTL: time.Second})
		require.ErrorIs(s, err, lease.ErrHeld)
		_, err = store.Get(s.Context(), "report")
		require.NoError(s, err)
		for _, err := range store.List(s.Context(), lease.ListRequest{}) {
			require.NoError(s, err)
		}
		time.Sleep(2 * time.Second)
		_, err = store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Second})
		require.ErrorIs(s, err, lease.ErrExpired)
		require.ErrorIs(s, store.Release(s.Context(), l.Claim), lease.ErrExpired)
		_, err = store.Sweep(s.Context(), lease.SweepRequest{})
		require.NoError(s, err)
		s.expect("pglatch_lease_losses_total", " 1")
		s.expect("pglatch_lease_requests_total",
			`{op="acquire",result="success"} 1`, `{op="acquire",result="held"} 1`, `{op="get",result="success"} 1`, `{op="list",result="success"} 1`,
			`{op="renew",result="refused"} 1`, `{op="release",result="refused"} 1`, `{op="sweep",result="success"} 1`)
	})
}

// patient can wait, as a lock server's client.
type patient struct{ *leasetest.Store }

func (p patient) AcquireWait(ctx context.Context, r lease.AcquireRequest, _ time.Duration) (lease.Lease, error) {
	return p.Acquire(ctx, r)
}

func TestAClientOfALockServerIsCountedToo(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		_, err := s.metrics.Client(patient{leasetest.NewStore()}).AcquireWait(s.Context(), lease.AcquireRequest{Name: "report", Holder: "a", TTL: time.Second}, time.Second)
		require.NoError(s, err)
		s.expect("pglatch_lease_requests_total", `{op="acquire_wait",result="success"} 1`)
	})
}
