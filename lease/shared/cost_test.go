package shared_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestASlotCostsAsMuchHoweverManyTheHolderHas(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	asked := 0
	l := locker(t, hooked{Store: store, beforeAcquire: func(lease.AcquireRequest) { asked++ }})
	const slots = 30
	request := func(i int) (r lease.AcquireRequest) {
		r = ask("pool", 0).AcquireRequest
		r.IdempotencyKey = fmt.Sprint("k", i)
		r.Metadata = map[string]string{"a": "b"}
		return r
	}
	for i := range slots {
		asked = 0
		r := ask("pool", slots)
		r.AcquireRequest = request(i)
		s, err := l.Acquire(t.Context(), r, 0)
		require.NoError(t, err)
		assert.Equal(t, i+1, s.Slot)
		assert.Equal(t, 2, asked, "of the gate and of the slot")
		assert.Equal(t, r.Metadata, s.Metadata, "what the request said, and nothing else")
		if i%2 == 0 { // who changes metadata takes away what tells whose slot it is
			continue
		}
		again, err := l.Acquire(t.Context(), r, 0)
		require.NoError(t, err)
		assert.Equal(t, s.Claim, again.Claim)
		assert.Equal(t, s.Metadata, again.Metadata)
	}
	r := ask("pool", slots)
	r.AcquireRequest = request(slots - 1)
	first, err := l.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: time.Hour, Metadata: map[string]string{}})
	require.NoError(t, err)
	again, err := l.Acquire(t.Context(), r, 0)
	require.NoError(t, err)
	assert.Equal(t, first.Claim, again.Claim)
}
