// Package leasehttp is the client of a lock server: fenced leases over HTTP. It depends only on
// the standard library, and on golang.org/x/sys/unix for a clock that keeps running while the
// machine is suspended. The server is in lease/leaseserver, which also documents the routes for
// programs in other languages.
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
// Errors are those of package lease that the server's store returned, and ErrDenied. After any
// other error, the outcome is unknown.
//
// # Several servers
//
// ClientConfig.BaseURLs has one server, or several that share one store. The client uses the first
// until one of these happens:
//
//	no answer, or one that was cut off       it continues with the next server, in the same call, with the same
//	502, 503, 504; a problem of type         idempotency key, and stays there: a lease is granted only once
//	store-unavailable, store-not-ready,
//	lock-busy-retry or internal; any other
//	answer that no lock server gives
//
// All other answers are about the lease or the request (held, stale, invalid, denied, too many
// requests), and are returned. Each time the client has tried all servers once, it pauses. The
// first pause is random, and at most 40 ms. Each further pause is twice as long, up to 10 s.
// Resends bounds how often a request is sent again.
//
// If a server is silent, the client waits for Timeout, plus the time for which the request
// itself waits. Then it tries the next server. A renewal gives each server less time, so that
// the others can be tried before the lease ends: with two servers, a third of the lease's
// remaining time. If a server dies, its waiting clients wait at the next one, behind the
// clients that are already there.
//
// # Locks that several hold
//
// With AcquireOptions.Slots = n, the client requests one of n slots of a lock, so that up to n
// clients may hold the lock at once. With Shared and Exclusive, it requests a reader's or a
// writer's lease. AcquireShare sends one such request. Such a lease is renewed, lost and released
// like any other. Lease.Share returns its slot and its fence. See lease/shared for the guarantees.
// A server of an older version refuses these requests.
//
// # Many leases
//
// The heartbeats of one client share requests for renewals that are due at about the same time. All
// leases with the same TTL need at most five requests in an interval, plus one for each 1,000
// leases. The time of each lease counts from just before its request was sent, and the loss of one
// lease does not affect the others. If a renewal fails, or has no answer in half of its time, it is
// sent again in a request of its own.
//
// # Calls at the same time
//
// Concurrent calls of one client share requests. While a batch or four plain requests are under
// way, further acquires are collected, and go out together in the next batch. The same is done
// for renewals and releases. Acquires do not delay renewals and releases, and are not delayed
// by them. The renewals of one RenewAll call, and those that heartbeats share, are always sent
// as a batch. A call that no other call joins is sent as a plain request.
//
//   - Each call has its own result, as if it had been sent alone. If a caller's context ends, the
//     other callers still get their results.
//   - If the answer to a batch is lost, each of its calls is sent again with its idempotency key.
//     The second time, it can share a request too. After that it is sent alone, because one of the
//     calls may have caused the loss.
//   - A batch is answered when all its operations are done. Calls are collected for at most 25 ms,
//     and then go out. A heartbeat whose renewal has no answer in half of its time sends it again
//     alone.
//   - An acquire that may wait, such as those of AcquireWait and Do, first tries in a batch whether
//     the lock is free. If the lock is held, the acquire is sent alone, and waits in the server's
//     queue. From then on, such acquires of that lock are sent alone from the start, until one of
//     them does not have to wait.
//   - AcquireShare sends its acquires alone.
//   - To a server that does not accept batches, such as one of an earlier version, the client
//     sends plain requests. After a minute, it tries a batch again.
//   - The context of a batch's request does not have the values of the callers' contexts. A
//     tracing HTTPClient therefore sees the batch as a separate request.
//
// # A holder that is started again
//
// A program can store the name, the owner and the ID of its lease (Lease.Claim). When it starts
// again after a crash or kill, it can take over the lease with Adopt, instead of waiting for the
// lease to end. The fencing token stays the same. This works as long as the lease is current.
// Adopt does not prolong the lease; a renewal does.
//
// # What gets lost
//
//	the answer to an acquire     the client sends the request again, with its idempotency key: the same lease
//	the answer to a renewal      the client sends it again: the lease is prolonged once more
//	the answer to a release      the client sends it again, with its idempotency key: it succeeds, even if
//	                             another holder has the lock by then. The store keeps the last release of each lock, for all servers,
//	                             if it is a lease.KeyedReleaser, as ours are; a server also remembers its last 4,096, until it ends.
//	                             If the server ended, and others have released the lock since, the error is a *lease.StaleError: the lease has ended
//	the connection to a waiter   the client sends the request again, with its idempotency key, while the first one still waits: both get the same lease
//	a waiting client             its place in the queue; a lease that was granted at that moment is given back if the request had no idempotency key, else it expires
//	the server                   waiters, but no leases; a client's heartbeat continues with another server, or retries until this one is back, or the lease ends
//	a client's wall clock        nothing: the client measures trust in a lease by its monotonic clock, from before it sent the request
//	time, while a machine is     the work's context ends at the first call of its Err or Done; an earlier channel, and
//	suspended                    contexts derived from it, end after an Interval at most
package leasehttp
