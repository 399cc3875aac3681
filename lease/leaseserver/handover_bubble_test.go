package leaseserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A lateStore takes some time for a hand-over.
type lateStore struct {
	*leasetest.Store
	late time.Duration
}

func (s lateStore) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	time.Sleep(s.late)
	return s.Store.HandOver(ctx, r, next)
}

func TestAWaitThatEndsDuringAHandOverGetsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 500 * time.Millisecond
		q, held := withHolder(t, lateStore{leasetest.NewStore(), 2 * wait})
		next := make(chan lease.Lease)
		go func() {
			l, _, err := q.acquire(t.Context(), ask("b"), wait)
			assert.NoError(t, err)
			next <- l
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, q.release(t.Context(), held.Claim))
		assert.Equal(t, "b", (<-next).Holder)
		assert.Equal(t, 2*wait, time.Since(began), "the wait was over by then")
	})
}

// A silentRenewer answers no renewal until the operation's time is over.
type silentRenewer struct{ lease.Store }

func (silentRenewer) Renew(ctx context.Context, _ lease.RenewRequest) (lease.Lease, error) {
	<-ctx.Done()
	return lease.Lease{}, context.Cause(ctx)
}

func TestManyRenewalsTakeTheTimeOfOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Store: silentRenewer{leasetest.NewStore()}, Registry: prometheus.NewRegistry()})
		require.NoError(t, err)
		all := make([]lease.RenewRequest, 100)
		began := time.Now()
		results, err := s.meter.renewAll(t.Context(), all, s.survive)
		require.NoError(t, err)
		assert.Equal(t, s.StoreTimeout, time.Since(began))
		busy := 0
		for _, r := range results {
			require.Error(t, r.Err)
			if errors.Is(r.Err, lease.ErrBusy) {
				busy++
			}
		}
		assert.Equal(t, len(all)-renewAtOnce, busy, "they were not tried")
	})
}

func ask(holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: holder, TTL: 10 * time.Hour}
}
