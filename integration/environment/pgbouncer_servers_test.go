//go:build integration

package environment

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

// openLeases returns a store on a database with its schema.
func openLeases(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	store, err := postgres.New(postgres.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func TestLockServersBehindAPoolerInSessionModeHearEachOther(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=session", "default_pool_size=40")
	a := servetest.NewPeer(t, openLeases(t, pooled), -1)
	b := servetest.NewPeer(t, openLeases(t, pooled), -1)
	servetest.AwaitMessages(t, a, b)
	servetest.AwaitMessages(t, b, a)
}

// What one client of the pooler listens to, another would get.
func TestLockServersBehindAPoolerThatSharesSessionsDoNotListenAndLook(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=10")
	err := openLeases(t, pooled).Listen(t.Context(), func() { t.Error("it listens") }, func(string) {})
	require.ErrorContains(t, err, "pool_mode=session")

	var log capture.Text
	var clients [2]servetest.Peer
	for i := range clients {
		clients[i] = servetest.NewPeerOf(t, leaseserver.Config{
			Store: openLeases(t, pooled), PollInterval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
	}
	await.Until(t, patience, func() bool { return strings.Count(log.String(), "changes_not_heard") == 2 })
	for i := range 4 {
		held, err := clients[i%2].Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, p := range clients {
			wg.Go(func() {
				l, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), servetest.Bound)
				if assert.NoError(t, err) {
					assert.NoError(t, p.Client.Release(t.Context(), l.Claim))
				}
			})
		}
		for _, p := range clients {
			servetest.AwaitWaiters(t, p.Server, 1)
		}
		require.NoError(t, clients[i%2].Client.Release(t.Context(), held.Claim))
		wg.Wait()
	}
}

// The session lock of a pooler's client would belong to nobody.
func TestLockServersBehindAPoolerThatSharesSessionsElectByALease(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=10")
	first, one := clitest.Serve(t, nil, "--store", pooled)
	first.Match(&first.Stderr, `msg=server_active`)
	second, two := clitest.Serve(t, nil, "--store", pooled)
	second.Match(&second.Stderr, `msg=server_forwards to=http://`+one)
	assert.Contains(t, second.Stderr.String(), "a lease in the store elects the active server")
	_, stderr, code := clitest.Run(t, nil, "lease", "acquire", "job", "--owner", "a", "--server", "http://"+two)
	require.Zero(t, code, stderr)
	first.Kill()
	second.Match(&second.Stderr, `msg=server_active`)
	_, stderr, code = clitest.Run(t, nil, "lease", "acquire", "pglatch::server::slot", "--owner", "a", "--server", "http://"+two)
	assert.NotZero(t, code, "no client can have the lease of the servers: %s", stderr)
}
