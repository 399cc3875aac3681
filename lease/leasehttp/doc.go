// Package leasehttp is the client of a lock server: fenced leases over HTTP. It links only the
// standard library, and golang.org/x/sys/unix for a clock that keeps running while the machine is
// suspended. lease/leaseserver has the server, and documents the routes for programs in other
// languages.
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
// Errors are those of package lease that the server's store returned, and ErrDenied. Any other
// error says that the outcome is unknown.
//
// # Several servers
//
// ClientConfig.BaseURLs has one server, or several that share one store. The client uses the first
// until one of these happens:
//
//	no answer, or one that was cut off       it goes on with the next server, in the same call, with the same
//	502, 503, 504; a problem of type         idempotency key, and stays there: a lease is granted only once
//	store-unavailable, store-not-ready,
//	lock-busy-retry or internal; any other
//	answer that no lock server gives
//
// All other answers are about the lease or the request (held, stale, invalid, denied, too many
// requests), and are returned. After each round in which all servers were tried once, the client
// pauses. The first pause is random, and at most 40 ms. Each further pause is twice as long, up
// to 10 s. Resends bounds the number of sendings.
//
// A silent server costs the Timeout of a sending; a request that waits also costs the time it
// waits. A renewal gives a server less time, so that the others are tried before the lease ends:
// with two servers, a third of the lease's remaining time. If a server dies, its waiting clients
// wait at the next one, behind those that are already there.
//
// # Locks that several hold
//
// AcquireOptions.Slots asks for a slot of a lock that up to that many clients may hold at once.
// Shared and Exclusive ask for a reader's and a writer's lease. AcquireShare is the single request.
// Such a lease is renewed, lost and released like any other. Lease.Share has its slot and its
// fence. See lease/shared for the guarantees. A server of an older version refuses these requests.
//
// # Many leases
//
// The heartbeats of one client share requests for renewals that are due at about the same time.
// Leases of one TTL need at most five requests in an interval, or one more for each 1,000 leases.
// Each lease counts from the moment before the request was sent, and can be lost only by itself. A
// renewal that has no answer in half of its time, or that failed, is sent again in a request of its
// own.
//
// # Calls at the same time
//
// What the goroutines of one client ask at the same time shares requests. While a batch or four
// plain requests are under way, acquires gather, and go out together in the next batch. So do
// renewals and releases. Acquires and the others do not delay each other. The renewals of one
// RenewAll, and those that heartbeats share, are a batch from the first on. A call that no
// other call joins is sent as a plain request.
//
//   - Each call has its own result, as if it had been sent alone. If a caller's context ends, the
//     others get their results.
//   - If the answer to a batch is lost, each of its calls is sent again with its idempotency key. It
//     can share its second request too. After that it is sent alone, because one of the calls may
//     have caused the loss.
//   - A batch is answered when all its operations are done. Calls that gather wait for at most 25 ms,
//     and then go out. A heartbeat whose renewal has no answer in half of its time sends it again
//     alone.
//   - An acquire that may wait, such as that of AcquireWait and Do, asks in a batch whether the lock
//     is free. If it is held, the acquire is sent alone, and waits in the server's queue. The next
//     such acquire of the lock is alone from the start, until one did not have to wait.
//   - AcquireShare sends its acquires alone.
//   - A server that does not take batches, such as one of an earlier version, gets plain requests.
//     After a minute, the client tries a batch again.
//   - The context of a batch's request has no values of its callers. A tracing HTTPClient sees a
//     request of its own.
//
// # A holder that is started again
//
// A program can keep the name, the owner and the id of its lease (Lease.Claim). After a crash or
// kill, it takes over the lease by Adopt instead of waiting for its end. The fencing token is the
// same. This works as long as the lease is current. Adopt does not prolong the lease; a renewal
// does.
//
// # What gets lost
//
//	the answer to an acquire     the client sends the request again, with its idempotency key: the same lease
//	the answer to a renewal      the client sends it again: the lease is prolonged once more
//	the answer to a release      the client sends it again, with its idempotency key: it succeeds, even if
//	                             another has the lock since. The store keeps the last release of each lock, for all servers,
//	                             if it is a lease.KeyedReleaser, as ours are; a server also remembers its last 4,096, until it ends
//	the way to a waiting client  the client sends the request again, with its idempotency key, while the first
//	                             sending still waits: both get the same lease
//	a waiting client             its place; a lease that was granted in that moment is given back if the
//	                             request had no idempotency key, else it expires
//	the server                   waiters, not leases; a client's heartbeat goes on with another, or until it is back, or the lease ends
//	a client's wall clock        is not used: the client trusts a lease by its monotonic clock, from before it asked
//	time, while a machine is     the work's context ends at the first call of its Err or Done; an earlier channel, and
//	suspended                    contexts derived from it, end after an Interval at most
package leasehttp
