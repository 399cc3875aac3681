package leaseserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	s, _, client := served(t, leaseserver.Config{PollInterval: -1})
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
	s, _, client := served(t, leaseserver.Config{Store: store})
	gate := func() lease.Record {
		record := recordOf(t, store, shared.SlotName("job", 0))
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
	s, h, client := served(t, leaseserver.Config{})
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

// shareWaits sends a request for a share that is the nth to wait at a server. A request that goes from one line to the
// next is in none for a moment, so nobody can count those who waited before.
func shareWaits(ctx context.Context, t *testing.T, at servetest.Peer, nth int, r shared.Request, wait time.Duration) <-chan shared.Share {
	t.Helper()
	got := make(chan shared.Share, 1)
	go func() {
		defer close(got)
		if s, err := at.Client.AcquireShare(ctx, r, wait); err == nil {
			got <- s
		}
	}()
	servetest.AwaitWaiters(t, at.Server, nth)
	return got
}

// The first sending gets the share, and its answer is lost. Others stand at the gate until the
// end of the test, and the second sending behind them; a third comes later and does not wait.
func TestASendingGetsTheShareThatAnEarlierOneGotThoughOthersStandBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holders, request, others shared.Request
		count                    int
	}{
		"one slot":               {slot("holder", 1), slot("a", 1), slot("b", 1), 1},
		"two slots":              {slot("holder", 2), slot("a", 2), slot("b", 2), 2},
		"shared behind a writer": {whole("holder"), slot("a", 0), whole("b"), 1},
		"before a writer":        {whole("holder"), slot("a", 2), whole("b"), 1},
		"the whole":              {slot("holder", 1), whole("a"), whole("b"), 1},
	} {
		for where := range 2 {
			t.Run(fmt.Sprintf("%s, second sending to server %d", name, where), func(t *testing.T) {
				t.Parallel()
				store := leasetest.NewStore()
				peers := []servetest.Peer{servetest.NewPeer(t, store, 20*time.Millisecond), servetest.NewPeer(t, store, 20*time.Millisecond)}
				again := peers[where]
				var held []shared.Share
				for i := range c.count {
					r := c.holders
					r.Holder += fmt.Sprint(i)
					s, err := peers[0].Client.AcquireShare(t.Context(), r, 0)
					require.NoError(t, err)
					held = append(held, s)
				}
				request := c.request
				request.IdempotencyKey = "k"
				ctx, hangUp := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				first := shareWaits(ctx, t, peers[0], 1, request, time.Minute)
				for i := range 2 {
					other := shareWaits(ctx, t, peers[0], i+2, c.others, time.Minute)
					wg.Go(func() { <-other })
				}
				nth := 4
				if where == 1 {
					nth = 1
				}
				second := shareWaits(ctx, t, again, nth, request, servetest.Bound)
				require.NoError(t, peers[0].Client.Release(t.Context(), held[0].Claim))
				want, ok := <-first
				require.True(t, ok)
				got, ok := <-second
				require.True(t, ok, "it has the share, and is refused")
				assert.Equal(t, want.Claim, got.Claim)
				assert.Equal(t, want.Fence, got.Fence)
				assert.Equal(t, want.Metadata, got.Metadata)
				for _, p := range peers {
					late, err := p.Client.AcquireShare(t.Context(), request, 0)
					require.NoError(t, err)
					assert.Equal(t, want.Claim, late.Claim)
					assert.Equal(t, want.Fence, late.Fence)
				}
				// Another request of the holder, and who has no key, is refused.
				for _, key := range []string{"another", ""} {
					request.IdempotencyKey = key
					_, err := again.Client.AcquireShare(t.Context(), request, 0)
					require.Error(t, err, "key %q", key)
				}
				hangUp()
				wg.Wait()
			})
		}
	}
}

func TestARecordHasTheWaitersOfTheActiveServer(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	held := acquire(t, peers[1].Client, servetest.Ask("job", "a"))
	quiet := acquire(t, peers[1].Client, servetest.Ask("quiet", "a"))
	got := []<-chan lease.Lease{acquires(t, peers[0], servetest.Ask("job", "b")), acquires(t, peers[1], servetest.Ask("job", "c"))}
	servetest.AwaitWaiters(t, peers[0].Server, 2)
	for i, p := range peers {
		for record, err := range p.Client.List(t.Context(), lease.ListRequest{}) {
			require.NoError(t, err)
			want := map[string]int{"job": 2, "quiet": 0}[record.Name]
			assert.Equal(t, new(want), record.Waiters, "%s at server %d", record.Name, i)
		}
	}
	require.NoError(t, peers[0].Client.Release(t.Context(), held.Claim))
	require.NoError(t, peers[0].Client.Release(t.Context(), quiet.Claim))
	for range got {
		var l lease.Lease
		select {
		case l = <-got[0]:
		case l = <-got[1]:
		}
		require.NoError(t, peers[0].Client.Release(t.Context(), l.Claim))
	}
	record := recordOf(t, peers[1].Client, "job")
	assert.Equal(t, new(0), record.Waiters)
}

func TestRequestsThatWaitForASlotCountAtTheGate(t *testing.T) {
	t.Parallel()
	s, _, client := served(t, leaseserver.Config{})
	first, err := client.AcquireShare(t.Context(), slot("a", 1), 0)
	require.NoError(t, err)
	done := make(chan error, 2)
	for _, holder := range []string{"b", "c"} {
		go func() {
			share, err := client.AcquireShare(t.Context(), slot(holder, 1), servetest.Bound)
			if err == nil {
				err = client.Release(t.Context(), share.Claim)
			}
			done <- err
		}()
	}
	gate := shared.SlotName("job", 0)
	servetest.AwaitWaiters(t, s, 2)
	record := recordOf(t, client, gate)
	assert.Equal(t, new(2), record.Waiters)
	record = recordOf(t, client, first.Name)
	assert.Equal(t, new(0), record.Waiters, "control: nobody waits for this slot alone")
	require.NoError(t, client.Release(t.Context(), first.Claim))
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}

// A server of an earlier version sends no waiters, and a store has none.
func TestWaitersAreUnknownWithoutTheField(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	acquire(t, store, servetest.Ask("job", "a"))
	record := recordOf(t, store, "job")
	assert.Nil(t, record.Waiters)
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(send(t, h, http.MethodGet, "/v1/locks/job", "").body), &body))
	assert.Contains(t, body, "waiters", "control: this version sends it")
	delete(body, "waiters")
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Pglatch-Request-Id"] = r.Header["Pglatch-Request-Id"]
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(body))
	}))
	t.Cleanup(old.Close)
	record = recordOf(t, servetest.Client(t, old, leasehttp.ClientConfig{}), "job")
	assert.Nil(t, record.Waiters)
}
