// Package leased spreads shards over nodes by fenced leases, wherever package lease keeps them:
// behind a lock server, in PostgreSQL, in etcd, in memory for tests.
//
//	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	defer client.Close()
//	backend, err := leased.New(client, leased.Config{Name: "tenants"})
//	…
//	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: tenants})
//
// Each shard is a lease, whose token is the Term, and each node that takes part has one more. One
// heartbeat renews all of a node's leases, in one operation of a store that is a lease.BatchRenewer.
package leased
