// Package lease is the contract of fenced leases: exclusive rights with an end, for
// clients that cannot keep a database session open — other languages, short jobs,
// processes behind a transaction pooler.
//
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: 30 * time.Second})
//	if errors.Is(err, lease.ErrHeld) {
//		return nil // somebody else does it
//	}
//	if err != nil {
//		return err
//	}
//	defer store.Release(context.WithoutCancel(ctx), l.Claim)
//	return write(ctx, report, l.Token) // what is written to refuses a token below the greatest it has seen
//
// Where leases are kept is the business of a Store: lease/postgres keeps them in
// PostgreSQL, lease/sqlite in a file, lease/etcd, a module of its own, in an etcd cluster, lease/leasehttp
// asks a lock server for them, and lease/leasetest has them in memory, for tests, and the suite that all
// of them pass. lease/shared makes locks of leases that several hold at once.
//
// # What it guarantees
//
// Safety:
//
//   - S1, exclusive ownership: at any time, by the store's clock, at most one lease of a
//     name has not ended.
//   - S2, monotonic fencing: each lease of a name has a greater token than all before
//     it. Tokens go on rising over releases, expiries, sweeps that forget the name, and
//     restarts. If what the lease protects accepts only token >= the greatest it has
//     seen, a stale writer cannot overwrite what a later holder wrote.
//   - S3, safe renewal and release: they must match holder, id and token, so the holder
//     of a lease that has ended cannot prolong or end that of a successor.
//
// Liveness:
//
//   - L1, progress by expiry: the name of a client that died can be granted when its
//     lease has expired and its LockDelay, if it asked for one, is over. No sweep needs
//     to have run.
//   - L2, bounded retry: whoever is refused learns how long the name can be kept, and a
//     jittered time to try again, at most a second, so that a herd spreads.
//
// # What it does not guarantee
//
// A lease is no proof that nobody else works: a holder that is paused does not see its
// lease end, and goes on until it looks. Only what it writes to can refuse that, by the
// token; in PostgreSQL, the Guard of lease/postgres does.
//
// Nobody is served in order, and nothing is known of who waits: that is for what
// stands before a store, as the lock server's long polls do; several servers before one
// that is a Messenger keep one order together. A store is as available
// and as durable as the one place where it keeps its data.
//
// # When to trust a lease
//
// The store's clock decides when a lease ends; the client's may be off by hours. So a
// client never compares ExpiresAt with its own clock. It notes its monotonic clock
// before it sends a request, and trusts the lease until that moment + Remaining - a
// margin for clocks of different rates, as Trust computes it:
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
// MinHold after a release, and LockDelay after an expiry, keep a name from being
// granted although nobody has a lease: Record.AvailableIn says for how long.
//
// # When things go wrong
//
//	the holder dies                        the lease expires; the name can be granted
//	the lease expires while it works       the token fences its late writes off; Renew says *ExpiredError or *StaleError
//	a renewal arrives late                 refused: *ExpiredError, or *StaleError if another has the lease
//	a release arrives late                 refused in the same way; what the successor has is untouched
//	two acquire at once                    one gets the lease, the other *HeldError
//	the answer to an acquire is lost       with an idempotency key the same request gets the same lease; else it expires
//	the answer to a release is lost        releasing once more is no error
//	an acquire is delivered once more      the same lease while it is current; later a lease that nobody uses, until it expires
//	the client's clock is wrong            nothing: it takes no part
//	the store's clock jumps forward        leases end early, while clients trust them: tokens still fence
//	the store's clock jumps back           leases last a little longer, as the store says; what was reported as expired stays so; tokens still rise
//	the store is busy                      *BusyError: nothing was done, try again
//	the store is not set up, or closed     ErrNotReady, ErrClosed: nothing was done
//	the store cannot be reached            an error that is none of this package's: the outcome is unknown
package lease
