package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestLocksAreSharedInPostgres(t *testing.T) {
	t.Parallel()
	sharetest.Run(t, sharetest.Harness{TTL: 500 * time.Millisecond, New: func(t *testing.T) lease.Store {
		t.Helper()
		return newStore(t, pgtest.DSN(t))
	}})
}

func TestSlotsAreSharedThroughSeveralServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	peers, _, _ := newPeers(t, 100*time.Millisecond)
	crowd := sharetest.Crowd{Clients: 8, Turns: 6, Slots: 3, TTL: 500 * time.Millisecond, Writers: true}
	crowd.Run(t.Context(), t, func(i int) sharetest.Client { return sharetest.Remote{Client: peers[i%2].Client} })
}

func TestWhoWaitsForASlotIsToldOfItsReleaseAtAnotherServer(t *testing.T) {
	t.Parallel()
	peers, _, heard := newPeers(t, -1)
	slot := func(holder string) shared.Request {
		return shared.Request{AcquireRequest: servetest.Ask("job", holder), Slots: 1}
	}
	held, err := peers[0].Client.AcquireShare(t.Context(), slot("holder"), 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		share, err := peers[1].Client.AcquireShare(t.Context(), slot("waiter"), patience)
		assert.NoError(t, err)
		assert.Equal(t, 1, share.Slot)
	})
	heard.Await("wait", 1)
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	heard.Await("free", 1)
}
