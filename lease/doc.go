// Package lease defines fenced leases: exclusive rights that expire unless renewed. They are for
// clients that cannot keep a database session open, such as programs in other languages, short
// jobs, and processes behind a transaction pooler.
//
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: 30 * time.Second})
//	if errors.Is(err, lease.ErrHeld) {
//		return nil // somebody else does it
//	}
//	if err != nil {
//		return err
//	}
//	defer store.Release(context.WithoutCancel(ctx), l.Claim)
//	return write(ctx, report, l.Token) // the resource refuses a token below the greatest it has seen
//
// A Store decides where leases are kept:
//
//   - lease/postgres keeps them in PostgreSQL
//   - lease/sqlite keeps them in a file
//   - lease/etcd, a separate module, keeps them in an etcd cluster
//   - lease/leasehttp requests them from a lock server
//   - lease/leasetest keeps them in memory, for tests, and has the test suite that all stores pass
//
// lease/shared uses leases to build locks that several clients can hold at once.
//
// # What it guarantees
//
// Safety:
//
//   - S1, exclusive ownership: at any time, by the store's clock, at most one lease of a name is
//     unexpired and unreleased.
//   - S2, monotonic fencing: each lease of a name has a greater token than all earlier leases of
//     that name. Tokens keep rising across releases, expiries, restarts, and sweeps that forget
//     the name. If the protected resource accepts only token >= the greatest it has seen, a
//     stale writer cannot overwrite data that a later holder wrote.
//   - S3, safe renewal and release: a request must match the lease's holder, id and token. So the
//     holder of a lease that has ended cannot prolong or end its successor's lease.
//
// Liveness:
//
//   - L1, progress by expiry: if a client dies, the name that it leased can be granted again
//     once the lease has expired and its LockDelay, if it has one, is over. This does not depend
//     on a sweep.
//   - L2, bounded retry: a refused caller learns how long the name may stay unavailable, and when
//     to retry. The delay before the retry is random, and at most a second, so that retries spread
//     out.
//
// # What it does not guarantee
//
// A lease does not prove that nobody else is working. A paused holder does not notice that its
// lease ends. When it resumes, it continues to work until it checks. Only the resource that it
// writes to can refuse its writes, by the token. In PostgreSQL, the Guard of lease/postgres
// does that.
//
// A store grants leases in no particular order and keeps no record of waiters. A layer in front of the store can queue them,
// as the lock server does with long polls. If several servers share one store, one of them is active, and the others forward
// to it. A store is only as available and as durable as the place where it keeps its data.
//
// # When to trust a lease
//
// The store's clock decides when a lease ends. The client's clock may be off by hours, so a client
// never compares ExpiresAt with its own clock. Instead, it reads its monotonic clock before it
// sends a request. From that moment, it trusts the lease for Remaining, minus a margin for clocks
// that run at different rates. Trust computes this:
//
//	sent := lease.Now()
//	l, err := store.Acquire(ctx, request)
//	…
//	until := lease.Trust(sent, l, 0)
//	…
//	if until.Passed() {
//		return errLost
//	}
//
//	        client:  sent ├──────────────── trusted ────────────────┤  margin
//	        store:      ├───────────────── Remaining ─────────────────────────┤ ExpiresAt
//
// # The states of a name
//
//	              acquire                  release
//	┌──────┐ ───────────────▶ ┌──────┐ ───────────────▶ FREE
//	│ FREE │                  │ HELD │ ─┐
//	└──────┘                  └──────┘ ◀┘ renew
//	    ▲                      ▲    │
//	    │              acquire │    │ ExpiresAt <= now
//	    │      sweep           │    ▼
//	    └───────────────── ┌─────────┐
//	                       │ EXPIRED │
//	                       └─────────┘
//
// Even if nobody has a lease on a name, the name may not be granted for some time: MinHold
// can prevent that after a release, and LockDelay after an expiry. Record.AvailableIn says
// for how long.
//
// # When things go wrong
//
//	the holder dies                        the lease expires; the name can be granted
//	the lease expires while it works       the token fences off its late writes; Renew returns *ExpiredError or *StaleError
//	a renewal arrives late                 refused: *ExpiredError, or *StaleError if a successor has the lease
//	a release arrives late                 refused in the same way; the successor's lease is untouched
//	two clients acquire at once            one gets the lease, the other *HeldError
//	the answer to an acquire is lost       with an idempotency key, the same request gets the same lease; without one, the lease expires unused
//	the answer to a release is lost        a repeated release is not an error
//	an acquire is delivered twice          with an idempotency key, the second gets the same lease while it is current; without one, *HeldError;
//	                                       after the first lease has ended, it gets a second one, which nobody uses until it expires
//	the client's clock is wrong            no effect: it is not used
//	the store's clock jumps forward        leases end early, while clients trust them: tokens still fence
//	the store's clock jumps back           leases last longer (see the store's package); a lease reported as expired stays expired; tokens still rise
//	the store is busy                      *BusyError: nothing was done, try again
//	the store is not set up, or closed     ErrNotReady, ErrClosed: nothing was done
//	the store cannot be reached            an error that this package does not define: the outcome is unknown
package lease
