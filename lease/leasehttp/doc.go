// Package leasehttp is the client of a lock server: fenced leases over HTTP. It links the
// standard library, and golang.org/x/sys/unix for a clock that goes on while the machine is
// suspended. The server, and the routes for what is no Go program, are in lease/leaseserver.
//
//	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	defer client.Close()
//	err = client.Do(ctx, "nightly-report", func(ctx context.Context) error {
//		return write(ctx, report, leasehttp.FencingToken(ctx))
//	})
//
// Do is short for:
//
//	l, err := client.AcquireWithRetry(ctx, "nightly-report", "worker-1", leasehttp.AcquireOptions{})
//	…
//	defer client.ReleaseOnce(ctx, l)
//	work, errs := client.StartHeartbeat(ctx, l, leasehttp.HeartbeatOptions{})
//	// work with the context work; l.FencingTokenValue() goes with every write
//
// Its errors are those of package lease that the server's store gave, and ErrDenied;
// any other one says that the outcome is unknown.
//
// # Several servers
//
// ClientConfig.BaseURLs has one server, or several that share one store. The client asks
// the first until one of these happens:
//
//	no answer, or one that was cut off       it goes on with the next server, in the same call, with the same
//	502, 503, 504; a problem of type         idempotency key, and stays there: what was granted is granted once
//	store-unavailable, store-not-ready,
//	lock-busy-retry or internal; any other
//	answer that no lock server gives
//
// All other answers tell of the lease or of the request (held, stale, invalid, denied, too
// many requests), and are returned. When all servers were asked once, there is a pause
// before the next round, of 25 ms at first, doubled each time and jittered; Resends bounds
// the whole. A server that is silent costs the Timeout of a sending, and of a request that
// waits that time, too; a renewal's is a third of what is left of the lease with two
// servers, so that the others are asked before it ends. Who waits at a server that dies
// waits at the next one, behind those who are there.
//
// # Locks that several hold
//
// AcquireOptions.Slots asks for a slot of a lock that so many may hold at once, Shared and Exclusive
// for a reader's and a writer's lease; AcquireShare is the single request. Such a lease is
// renewed, lost and released as any; Lease.Share has its slot and its fence. See lease/shared
// for what is promised. A server of an older version refuses them.
//
// # Many leases
//
// The heartbeats of one client renew together what is due at about the same time: leases of
// one TTL by five requests in an interval at most, or one more for each 500 leases. Each
// lease counts from the moment before the request was sent, and is lost alone: one that has
// no answer in half of its time, or got an error, is renewed in a request of its own.
//
// # A holder that is started again
//
// A program that keeps the name, the owner and the id of its lease (Lease.Claim) takes it
// up again by Adopt when it was killed, instead of waiting for its end: with the same fencing
// token, and as long as the lease is current. Nothing is prolonged until it is renewed.
//
// # What gets lost
//
//	the answer to an acquire     the client sends the request again, with its idempotency key: the same lease
//	the answer to a renewal      the client sends it again: it is prolonged once more
//	the answer to a release      the client sends it again, with its idempotency key: it succeeds, also when
//	                             another has the lock since; the server knows its last 4,096 releases, until it ends.
//	                             Another server does not: there it is *lease.StaleError if another has the lock since
//	the way to a waiting client  the client sends the request again, with its idempotency key, while the first
//	                             sending still waits: both get the same lease
//	a waiting client             its place; a lease that was granted in that moment is given back if the
//	                             request had no idempotency key, else it expires
//	the server                   waiters, not leases; a client's heartbeat goes on with another, or until it is back, or the lease ends
//	a client's clock             plays no part: it trusts a lease by its monotonic clock, from before it asked
//	time, while a machine is     the work's context ends at the first look at its Err; its Done and contexts
//	suspended                    made from it after an Interval at most
package leasehttp
