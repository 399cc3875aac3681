package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/bench/load"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// A TTL of less than a second becomes one of a whole second at least, and etcd ends leases some time after theirs.
func TestTheLoadFindsNoBrokenPromiseOnEtcd(t *testing.T) {
	t.Parallel()
	store := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	r := load.New(load.Config{Locks: load.OfServer(client), Clients: 8, Names: 8, TTL: 300 * time.Millisecond, Heartbeat: 0.05, Expire: 0.3}).Run(ctx)
	require.Empty(t, r.Violations)
	assert.Positive(t, r.Counts.StaleRenewals, "some were left to expire")
}
