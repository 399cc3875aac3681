package leaseserver_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func TestARecordHasTheWaitersOfTheActiveServer(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	held, err := peers[1].Client.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	quiet, err := peers[1].Client.Acquire(t.Context(), servetest.Ask("quiet", "a"))
	require.NoError(t, err)
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
	record, err := peers[1].Client.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, new(0), record.Waiters)
}

func TestRequestsThatWaitForASlotCountAtTheGate(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
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
	record, err := client.Get(t.Context(), gate)
	require.NoError(t, err)
	assert.Equal(t, new(2), record.Waiters)
	record, err = client.Get(t.Context(), first.Name)
	require.NoError(t, err)
	assert.Equal(t, new(0), record.Waiters, "control: nobody waits for this slot alone")
	require.NoError(t, client.Release(t.Context(), first.Claim))
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}

// A server of an earlier version sends no waiters, and a store has none.
func TestWaitersAreUnknownWithoutTheField(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, err := store.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	record, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
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
	record, err = servetest.Client(t, old, leasehttp.ClientConfig{}).Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Nil(t, record.Waiters)
}
