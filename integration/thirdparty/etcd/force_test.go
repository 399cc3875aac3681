package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// etcd says that a lock is kept for some seconds longer than its lease: that is no lock delay.
func TestALeaseThatIsEndedByForceKeepsTheLockOnlyIfItAskedForThat(t *testing.T) {
	t.Parallel()
	store := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: servetest.Token, Right: leaseserver.Admin, Name: "ops"}}})
	client := servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token})
	for name, delay := range map[string]time.Duration{"plain": 0, "delayed": time.Minute} {
		r := servetest.Ask(name, "a")
		r.LockDelay = delay
		_, err := client.Acquire(t.Context(), r)
		require.NoError(t, err)
		_, kept, err := client.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: name, Reason: "its host is gone"})
		require.NoError(t, err)
		_, err = client.Acquire(t.Context(), servetest.Ask(name, "b"))
		if delay == 0 {
			require.NoError(t, err)
			assert.Zero(t, kept)
		} else {
			require.Error(t, err)
			assert.GreaterOrEqual(t, kept, delay)
		}
	}
}
