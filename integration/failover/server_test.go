//go:build integration

package failover

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/postgres"
)

// ready is what a lock server answers to whom asks whether it can be used.
func ready(t *testing.T, address string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestLockServersWithBothHostsServeOverThePromotionAndLoseNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, "remote_apply")
	var addresses []string
	var all []lease.Store
	for range 2 {
		_, address := clitest.Serve(t, nil, "--store", p.dsn())
		addresses = append(addresses, address)
		for range clients / 2 {
			client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + address}, Resends: -1})
			require.NoError(t, err)
			t.Cleanup(client.Close)
			all = append(all, leaseload.Remote{Client: client})
		}
	}
	l := startLoad(t, all...)
	l.Await(enough)
	killed := time.Now()
	require.NoError(t, p.primary.Kill())
	for _, address := range addresses {
		await.Until(t, patience, func() bool { return ready(t, address) == http.StatusServiceUnavailable }, "without a primary a server is not ready")
	}
	p.promote()
	promoted, atPromotion := time.Now(), l.Granted()
	l.Await(1)
	served := time.Now()
	for _, address := range addresses {
		await.Until(t, patience, func() bool { return ready(t, address) == http.StatusNoContent }, "it goes on by itself")
	}
	l.Await(enough)
	l.Stop()
	t.Logf("granted before %d, after %d; the standby took writes %v after the kill, and the first lease was granted %v after that; %+v", atPromotion,
		l.Granted()-atPromotion, promoted.Sub(killed).Round(time.Millisecond), served.Sub(promoted).Round(time.Millisecond), l.History.Counts())
	l.RequireLegal(t.Context())
}

// Nobody looks by itself: who is woken at another server is woken by a message.
func TestLockServersHearEachOtherAfterThePromotion(t *testing.T) {
	t.Parallel()
	p := newPair(t, "remote_apply")
	var peers [2]servetest.Peer
	for i := range peers {
		store, err := postgres.New(postgres.Config{DSN: p.dsn()})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		peers[i] = servetest.NewPeer(t, store, -1)
	}
	servetest.AwaitMessages(t, peers[0], peers[1])
	p.failOver()
	servetest.AwaitMessages(t, peers[0], peers[1])
	servetest.AwaitMessages(t, peers[1], peers[0])
}
