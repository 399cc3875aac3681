//go:build integration

package failover

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/postgres"
)

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
