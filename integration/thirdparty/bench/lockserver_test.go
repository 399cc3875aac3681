package bench

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// newSQLite returns a lock server on SQLite, with its durable setting.
func newSQLite(b *testing.B) contender {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return newLockServer(b, "sqlite", workers, store)
}

// durable has the default durability of PostgreSQL.
var durable = pgserver.Options{Settings: map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}}

// newPostgres returns a lock server on a PostgreSQL with the default durability.
func newPostgres(b *testing.B) contender {
	b.Helper()
	server := pgtest.StartServer(b, durable)
	config, err := pgxpool.ParseConfig(server.DSN(""))
	require.NoError(b, err)
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	store, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(b, err)
	require.NoError(b, store.Migrate(b.Context()))
	return newLockServer(b, "postgres", workers, store)
}

// newLockServer serves a store. Its workers wait in line through one client, which keeps a
// connection for each.
func newLockServer(b *testing.B, name string, workers int, store lease.Store) contender {
	b.Helper()
	server, err := leaseserver.New(leaseserver.Config{Store: store})
	require.NoError(b, err)
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, listener) })
	b.Cleanup(func() {
		stop()
		serving.Wait()
	})
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + listener.Addr().String()}})
	require.NoError(b, err)
	b.Cleanup(client.Close)
	c := contender{name: name, cycles: make([]cycler, workers), requests: func() float64 { return acquires(b, server) }}
	for i := range c.cycles {
		c.cycles[i] = func(ctx context.Context, lock string, held func()) error {
			l, err := client.AcquireWait(ctx, lease.AcquireRequest{Name: lock, Holder: "worker", TTL: time.Minute}, time.Minute)
			if err != nil {
				return err
			}
			held()
			return client.Release(context.WithoutCancel(ctx), l.Claim)
		}
	}
	return c
}

// acquires returns how many acquire requests a server has answered.
func acquires(b *testing.B, server *leaseserver.Server) (n float64) {
	b.Helper()
	families, err := server.Registry.Gather()
	require.NoError(b, err)
	for _, family := range families {
		if family.GetName() != "lock_acquire_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}
