// Package leasehttp is the client of a lock server: fenced leases over HTTP. It links the
// standard library, and golang.org/x/sys/unix for a clock that goes on while the machine is
// suspended. The server, and the routes for what is no Go program, are in lease/leaseserver.
//
//	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURL: "http://127.0.0.1:8080"})
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
// # What gets lost
//
//	the answer to an acquire     the client sends the request again, with its idempotency key: the same lease
//	the answer to a renewal      the client sends it again: it is prolonged once more
//	the answer to a release      the client sends it again, with its idempotency key: it succeeds, also when
//	                             another has the lock since; the server knows its last 4,096 releases, until it ends
//	the way to a waiting client  the client sends the request again, with its idempotency key, while the first
//	                             sending still waits: both get the same lease
//	a waiting client             its place; a lease that was granted in that moment is given back if the
//	                             request had no idempotency key, else it expires
//	the server                   waiters, not leases; a client's heartbeat goes on until it is back, or the lease ends
//	a client's clock             plays no part: it trusts a lease by its monotonic clock, from before it asked
//	time, while a machine is     the work's context ends at the first look at its Err; its Done and contexts
//	suspended                    made from it after an Interval at most
package leasehttp
