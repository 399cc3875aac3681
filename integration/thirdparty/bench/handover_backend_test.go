package bench

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// The URL schemes of stores on which a lease is the leadership.
const (
	leaseScheme = "lease-postgres"
	etcdScheme  = "etcd"
)

// grounds are the places of elections. open returns the URL by which a process finds its
// backend.
var grounds = []struct {
	name  string
	local bool // there is no network to cut
	open  func(b *testing.B) string
}{
	{name: "postgres", open: emptyDatabase},
	{name: "file", local: true, open: noFile},
	{name: "leased-sqlite-http", open: serveSQLite},
	{name: "leased-postgres", open: migrateLeases},
	{name: "leased-etcd", open: startMembers},
}

// newBackend creates the backend that a URL names. Call shut after its last use.
func newBackend(target string) (backend leader.Backend, shut func(), err error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		backend, err = postgres.New(postgres.Config{DSN: target, Key: election, CreateTable: true})
		return backend, func() {}, err
	case "file":
		return file.NewBackend(u.Path), func() {}, nil
	case "http":
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{target}})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(client, leased.Config{Name: "election"})
		return backend, client.Close, err
	case leaseScheme:
		store, err := leasepostgres.New(leasepostgres.Config{DSN: strings.TrimPrefix(target, "lease-")})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(store, leased.Config{Name: "election"})
		return backend, store.Close, err
	case etcdScheme:
		store, err := etcd.Open(context.Background(), etcd.Config{Client: clientv3.Config{Endpoints: []string{"http://" + u.Host}}})
		if err != nil {
			return nil, nil, err
		}
		backend, err = leased.New(store, leased.Config{Name: "election"})
		return backend, func() { _ = store.Close() }, err
	}
	return nil, nil, fmt.Errorf("no backend for %s", target)
}

func emptyDatabase(b *testing.B) string {
	b.Helper()
	return pgtest.DSN(b)
}

func noFile(b *testing.B) string {
	b.Helper()
	return "file://" + filepath.Join(b.TempDir(), "leader.json")
}

// serveSQLite serves a lock server on SQLite, with its durable setting.
func serveSQLite(b *testing.B) string {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
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
	return "http://" + listener.Addr().String()
}

// startMembers starts an etcd cluster of three members. Candidates know only one member, so
// that a proxy can cut them off.
func startMembers(b *testing.B) string {
	b.Helper()
	return etcdScheme + "://" + strings.TrimPrefix(startCluster(b, 3)[0].Address, "http://")
}

// migrateLeases creates the lease schema in a database.
func migrateLeases(b *testing.B) string {
	b.Helper()
	dsn := pgtest.DSN(b)
	store, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
	require.NoError(b, err)
	defer store.Close()
	require.NoError(b, store.Migrate(b.Context()))
	return "lease-" + dsn
}
