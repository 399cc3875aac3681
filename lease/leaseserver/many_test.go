package leaseserver_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// Many waiters of a server that forwards move at once: to the next active server, or back to their own one
// when the active server dies. Each of them has its turn, and no error reaches it.
//
//nolint:paralleltest // beside other tests it takes longer than a server may be silent
func TestManyWaitersMoveAtOnce(t *testing.T) {
	waits := soak.Size(t, 200, 2000)
	for name, move := range map[string]func(t *testing.T, peers []servetest.Peer) (to int){
		"to the next active server": func(t *testing.T, peers []servetest.Peer) int {
			t.Helper()
			servetest.Elect(t, peers, 1)
			return 1
		},
		"when the active server dies": func(t *testing.T, peers []servetest.Peer) int {
			t.Helper()
			peers[0].HTTP.Listener.Close()
			peers[0].HTTP.CloseClientConnections()
			return 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			peers := newPeers(t, 3, 0)
			held, err := peers[2].Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
			require.NoError(t, err)
			client := servetest.Client(t, peers[2].HTTP, leasehttp.ClientConfig{})
			var wg sync.WaitGroup
			t.Cleanup(wg.Wait)
			began := time.Now()
			for i := range waits {
				wg.Go(func() {
					l, err := client.AcquireWait(t.Context(), servetest.Ask("job", strconv.Itoa(i)), time.Minute)
					if assert.NoError(t, err) {
						assert.NoError(t, client.Release(t.Context(), l.Claim))
					}
				})
			}
			servetest.AwaitWaiters(t, peers[0].Server, waits)
			wait := time.Since(began)
			began = time.Now()
			to := move(t, peers)
			servetest.AwaitWaiters(t, peers[to].Server, waits)
			moved := time.Since(began)
			began = time.Now()
			require.NoError(t, client.Release(t.Context(), held.Claim))
			wg.Wait()
			t.Logf("%d waiters arrived in %v, moved in %v, and had their turns in %v", waits, wait, moved, time.Since(began))
		})
	}
}
