package leaseserver_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func slot(holder string, slots int) shared.Request {
	return shared.Request{AcquireRequest: servetest.Ask("job", holder), Slots: slots}
}

func whole(holder string) shared.Request {
	r := slot(holder, 0)
	r.Exclusive = true
	return r
}

func TestSlotsAreSharedThroughSeveralServersOfOneStore(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	var clients []*leasehttp.Client
	for range 2 {
		_, h := servetest.Serve(t, leaseserver.Config{Store: store, PollInterval: 20 * time.Millisecond})
		clients = append(clients, servetest.Client(t, h, leasehttp.ClientConfig{}))
	}
	crowd := sharetest.Crowd{Clients: 8, Turns: 8, Slots: 3, TTL: 300 * time.Millisecond, Writers: true}
	crowd.Run(t.Context(), t, func(i int) sharetest.Client { return sharetest.Remote{Client: clients[i%2]} })
}

func TestASlotIsRenewedReleasedAndSeenByTheNameOfItsLease(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{Tokens: []leaseserver.Token{{Secret: servetest.Token, Prefix: "job"}}})
	client := servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token})
	first, err := client.AcquireShare(t.Context(), slot("a", 2), 0)
	require.NoError(t, err)
	second, err := client.AcquireShare(t.Context(), slot("b", 2), 0)
	require.NoError(t, err)
	assert.Equal(t, "job::slot::0002", second.Name)
	assert.Greater(t, second.Fence, first.Fence)
	_, err = client.AcquireShare(t.Context(), slot("c", 2), 0)
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	assert.Equal(t, "job", held.Name)
	_, err = client.Renew(t.Context(), lease.RenewRequest{Claim: second.Claim, TTL: time.Hour})
	require.NoError(t, err)

	page := send(t, h, http.MethodGet, "/v1/locks?prefix=job::slot::", "", "Authorization", "Bearer "+servetest.Token)
	assert.Contains(t, page.body, `"share_of":"job","slot":2`)
	assert.Contains(t, page.body, `"owner_id":"b"`)
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	d.checkAnswer(t, "/v1/locks", http.MethodGet, page)

	require.NoError(t, client.Release(t.Context(), first.Claim))
	_, err = client.AcquireShare(t.Context(), whole("w"), 0)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, client.Release(t.Context(), second.Claim))
	all, err := client.AcquireShare(t.Context(), whole("w"), 0)
	require.NoError(t, err)
	assert.Zero(t, all.Slot)
	assert.Greater(t, all.Fence, second.Fence)
	assert.InDelta(t, 2, servetest.Metric(t, s, "lock_shares_granted_total", "shared"), 0)
	assert.InDelta(t, 1, servetest.Metric(t, s, "lock_shares_granted_total", "exclusive"), 0)
}

func TestTheNamesOfSlotsAreLeasedInNoOtherWay(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	for _, c := range []struct {
		name, more string
		status     int
	}{
		{"job::slot::0001", ``, 400},
		{"job::slot::0000", ``, 400},
		{"job::slot", ``, 400},
		{"job::slot::0001", `,"slots":2`, 400},
		{"job", `,"mode":"shard"`, 400},
		{"job", `,"slots":1001`, 422},
		{"job", `,"slots":-1`, 422},
		{"job", `,"slots":0`, 422},
		{"job", `,"mode":"shared","slots":0`, 422},
		{"job", `,"mode":""`, 400},
		{"job", `,"mode":"exclusive","slots":2`, 422},
		{"job", `,"mode":"exclusive","min_hold_ms":1`, 422},
		{"job", `,"slots":1`, 200},
		{"job", `,"slots":1`, 409},
		{"job", ``, 200}, // another lock
	} {
		got := send(t, h, http.MethodPost, "/v1/locks/"+c.name+"/acquire", `{"owner_id":"a","ttl_ms":60000`+c.more+`}`)
		assert.Equal(t, c.status, got.status, "%+v: %s", c, got.body)
		d.checkAnswer(t, "/v1/locks/{lock}/acquire", http.MethodPost, got)
	}
}

func TestWhoWaitsForASlotIsServedInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{PollInterval: -1})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := client.AcquireShare(t.Context(), slot("holder", 1), 0)
	require.NoError(t, err)
	const waiters = 5
	served := make(chan int, waiters)
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			r := slot(fmt.Sprint(i), 1)
			if i == 2 {
				r = whole("2")
			}
			share, err := client.AcquireShare(t.Context(), r, servetest.Bound)
			if assert.NoError(t, err) {
				served <- i
				assert.NoError(t, client.Release(t.Context(), share.Claim))
			}
		})
		servetest.AwaitWaiters(t, s, i+1)
	}
	require.NoError(t, client.Release(t.Context(), held.Claim))
	wg.Wait()
	close(served)
	var order []int
	for i := range served {
		order = append(order, i)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4}, order)
}

func TestALockDelayIsOfWhoGotTheWholeLockAndNotOfWhoWaitsForIt(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	s, h := servetest.Serve(t, leaseserver.Config{Store: store})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	gate := func() lease.Record {
		record, err := store.Get(t.Context(), shared.SlotName("job", 0))
		require.NoError(t, err)
		return record
	}
	reader, err := client.AcquireShare(t.Context(), slot("reader", 2), 0)
	require.NoError(t, err)
	w := whole("writer")
	w.LockDelay, w.IdempotencyKey = time.Hour, "k"
	_, err = client.AcquireShare(t.Context(), w, 20*time.Millisecond)
	require.ErrorIs(t, err, lease.ErrHeld)
	assert.LessOrEqual(t, gate().AvailableIn, shared.DefaultGateTTL)
	var wg sync.WaitGroup
	for range 2 { // sendings of one request
		wg.Go(func() {
			share, err := client.AcquireShare(t.Context(), w, servetest.Bound)
			if assert.NoError(t, err) {
				assert.Equal(t, gate().ID, share.ID)
			}
		})
	}
	servetest.AwaitWaiters(t, s, 2)
	require.NoError(t, client.Release(t.Context(), reader.Claim))
	wg.Wait()
	assert.Greater(t, gate().AvailableIn, w.LockDelay)
}

func TestWhoHangsUpWhileItWaitsForASlotLetsTheNextWait(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	held, err := client.AcquireShare(t.Context(), slot("holder", 1), 0)
	require.NoError(t, err)
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = post(ctx, h, "/v1/locks/job/acquire?wait=1m", `{"owner_id":"gone","ttl_ms":60000,"slots":1}`)
	})
	servetest.AwaitWaiters(t, s, 1)
	hangUp()
	wg.Wait()
	servetest.AwaitWaiters(t, s, 0)
	require.NoError(t, client.Release(t.Context(), held.Claim))
	next, err := client.AcquireShare(t.Context(), slot("next", 1), servetest.Bound)
	require.NoError(t, err)
	assert.Equal(t, 1, next.Slot)
}
