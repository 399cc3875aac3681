package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// The environment variables that turn this program into a lock server.
const (
	listenVariable  = "PGLATCH_DEMO_LISTEN" // its address
	clusterVariable = "PGLATCH_DEMO_ETCD"   // client URLs of the members
)

// serveLocks is the main function of a lock server. It does what pglatch-etcd serve locks does.
func serveLocks(address string) error {
	demokit.EndWithDriver()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{Endpoints: strings.Split(os.Getenv(clusterVariable), ",")}})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // the process ends
	server, err := leaseserver.New(leaseserver.Config{Store: store, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	listener, err := demokit.ListenOn(ctx, address)
	if err != nil {
		return err
	}
	return server.Serve(ctx, listener)
}
