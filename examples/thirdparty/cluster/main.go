// Command cluster shows, with real processes, that leases in an etcd cluster survive the death of any single process:
//
//	make demo-cluster                   # and stay until Ctrl-C
//	go run . -once                      # in this directory; exit 1 if a claim fails
//	go run . -once -break               # the control: clients ignore that their leases end, and a claim fails
//
// Three etcd members and two lock servers start, each as a process of its own on a loopback address. The servers elect
// the active one, and the other forwards to it. 40 clients acquire leases through both servers, stay inside for a moment,
// and release: 24 share four locks, 12 have one each, and four more stay in theirs, by renewing. All of them report to
// one witness when they enter and leave, with the token of their lease. The witness knows nothing of leases: it detects
// two clients inside one lock, and tokens that do not rise.
//
// Then the demo kills the etcd leader, one lock server, and the other lock server with kill -9, one after the other, and
// restarts each. It prints for how long nobody was served.
package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/leader/activeserver"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

func main() {
	etcdtest.Main() // does not return if this process is a member
	demokit.Main("pglatch: three etcd members, two lock servers, 40 clients, and kill -9",
		"clients of shared locks ignore that their leases end", serveLocks, tell)
}

// serveLocks is the main function of a lock server. It does what pglatch-etcd serve locks does. Its arguments are its
// address and the client URLs of the etcd members.
func serveLocks(ctx context.Context, n *demokit.Node) error {
	address, members := n.Args[0], n.Args[1:]
	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{Endpoints: members}})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // the process ends
	election, err := activeserver.New(activeserver.Config{URL: "http://" + address, Store: store, Logger: n.Log})
	if err != nil {
		return err
	}
	server, err := leaseserver.New(leaseserver.Config{Store: store, Peers: leaseserver.Peers{Election: election}, Logger: n.Log})
	if err != nil {
		return err
	}
	listener, err := n.Listen(ctx, address)
	if err != nil {
		return err
	}
	if err := election.Start(ctx); err != nil {
		return err
	}
	defer election.Stop()
	return server.Serve(ctx, listener)
}
