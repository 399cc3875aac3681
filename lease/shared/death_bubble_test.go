package shared_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

var errDead = errors.New("the process is dead")

// A dying store is that of a process which is killed: before an operation, or when it was
// carried out and nobody has heard of it.
type dying struct {
	lease.Store

	left   int  // operations that are answered
	unsaid bool // the next one is carried out
}

func (d *dying) dies() (dead, carriesOut bool) {
	d.left--
	return d.left < 0, d.left == -1 && d.unsaid
}

func (d *dying) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Acquire(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Acquire(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Renew(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Renew(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Release(ctx context.Context, c lease.Claim) error {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Release(ctx, c)
	}
	if carriesOut {
		_ = d.Store.Release(ctx, c)
	}
	return errDead
}

func (d *dying) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if dead, _ := d.dies(); dead {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, errDead) }
	}
	return d.Store.List(ctx, r)
}

// A request dies after each of its operations, and is sent again through another server: it gets
// one share, and a writer comes after it.
func TestARequestThatDiesAnywhereIsSentAgainAndHasOneShare(t *testing.T) {
	t.Parallel()
	const operations = 6
	for _, exclusive := range []bool{false, true} {
		for left := range operations {
			for _, unsaid := range []bool{false, true} {
				t.Run(fmt.Sprintf("exclusive %v, %d operations, unsaid %v", exclusive, left, unsaid), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { dieAndGoOn(t, exclusive, left, unsaid) })
				})
			}
		}
	}
}

func dieAndGoOn(t *testing.T, exclusive bool, left int, unsaid bool) {
	t.Helper()
	store := leasetest.NewStore()
	r := ask("a", 2)
	r.IdempotencyKey, r.Exclusive = "k", exclusive
	if exclusive {
		r.Slots = 0
	}
	told, err := locker(t, &dying{Store: store, left: left, unsaid: unsaid}).Acquire(t.Context(), r, 0)
	if err != nil {
		require.ErrorIs(t, err, errDead)
	}
	began := time.Now()
	other := locker(t, store)
	share, err := other.Acquire(t.Context(), r, time.Minute)
	require.NoError(t, err)
	assert.LessOrEqual(t, time.Since(began), shared.DefaultGateTTL+shared.DefaultPollInterval)
	if told.ID != "" {
		assert.Equal(t, told.Claim, share.Claim)
	}
	holders, err := other.Holders(t.Context(), "job")
	require.NoError(t, err)
	require.Len(t, holders, 1, "nothing is left of the first sending beside it")
	assert.Equal(t, share.Claim, holders[0].Claim)

	w := ask("writer", 0)
	w.Exclusive = true
	_, err = other.Acquire(t.Context(), w, 0)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, store.Release(t.Context(), share.Claim))
	_, err = other.Acquire(t.Context(), w, 0)
	require.NoError(t, err)
}
