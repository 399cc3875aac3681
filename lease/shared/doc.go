// Package shared provides leases that several clients hold at once: a lock with n slots (a
// semaphore), and a lock that many readers share or one writer holds alone. It is built
// from ordinary leases, over any lease.Store:
//
//	locker, err := shared.New(shared.Config{Store: store})
//	…
//	s, err := locker.Acquire(ctx, shared.Request{AcquireRequest: lease.AcquireRequest{Name: "gpu", Holder: "worker-1", TTL: time.Minute}, Slots: 3}, 10*time.Second)
//	if errors.Is(err, lease.ErrHeld) {
//		return nil // all three are taken
//	}
//	if err != nil {
//		return err
//	}
//	defer store.Release(context.WithoutCancel(ctx), s.Claim)
//
// A share is renewed and released like any lease, by its claim, whose name contains the slot.
// Through a lock server, lease/leasehttp does all this: AcquireOptions.Slots, Shared and Exclusive.
// The server grants leases on the names of slots only in this way.
//
// # What it guarantees
//
//   - If no request asks for more than n slots, at most n leases of a lock are current at any
//     time, by the store's clock.
//   - While a client holds the whole lock, by an exclusive request, nobody else holds the
//     lock or a slot of it.
//
// Both depend only on S1 and S3 of package lease. As there, a paused holder does not notice that
// its lease ends.
//
// Requests for different numbers of slots of one lock compete for the same slots. A request for n
// is granted if fewer than n slots are taken, whoever took them. So the greatest number in any
// request is the limit for all. An ordinary lease on the lock's own name is a different lock, and
// keeps nobody out of this one.
//
// # How it works
//
// Slot 2 of the lock job is a lease on the name job::slot::0002. The lease on job::slot::0000 is
// the gate.
//
//	a slot:       lease the gate ─ look at the slots ─ lease the lowest that is free ─ release the gate
//	the whole:    lease the gate ─ look at the slots, until none is taken ─ renew the gate: it is the lease
//
// A request must hold the gate to look at slots, to take one, or to get the whole lock. A request
// for a slot has the slot once its release of the gate has succeeded, because that proves that
// nobody else has held the gate since the request looked. If the release fails, the request gives
// the slot back. For an exclusive request, the renewal of the gate is the proof. Before an
// exclusive request is granted, it leases each expired slot once more, so that a renewal of the
// old lease that is still under way fails.
//
// A LockDelay and a MaxLifetime apply only to the lease, not to the time during which the request
// waits at the gate. So for a request with one of these settings, the gate is not renewed: on a
// lease.HandOverer, a new lease with the settings replaces the lease of the gate, in one
// operation.
//
// A share costs four operations of the store, and the requests for one lock run one after the
// other. For a request with an IdempotencyKey, a slot costs a fifth operation. After the release
// of the gate, that operation writes the Fence into the slot's metadata, as pglatch.fence. If a
// request is sent again and does not pass the gate, it finds its slot by this Fence. The slot's
// metadata also contains a 32-bit digest of the IdempotencyKey, as pglatch.request. So the cost
// does not grow with the number of slots of a holder.
//
// # Waiting
//
// A request that waits for a slot, or for the whole lock, keeps the gate while it waits. Later
// requests wait at the gate. So readers do not starve a writer, a writer does not starve readers,
// and requests with a small number of slots do not starve those with a large one. The store decides
// the order at the gate: a lock server's queue is first come, first served. On another store, each
// request retries.
//
// A request that does not wait is refused at once if the lock is taken, or if an exclusive request
// waits. If other requests are just passing the gate, it waits for them, for at most a second.
//
// # Fencing tokens
//
// No store has tokens that rise across several names, so the Token of a share rises only among the
// leases of its slot. Share.Fence is the gate's token. Each share has a different one, so it rises
// across all shares of the lock, whatever their slots. It identifies a stale holder:
//
//   - A resource that readers and writers use keeps two numbers: the greatest Fence of
//     all, and the greatest Fence of a writer. It refuses a write below the first, and a
//     read below the second.
//   - A resource that belongs to one slot, such as a device, keeps the greatest Token of the slot,
//     and refuses smaller ones.
//   - Among several clients that have slots of one lock at once, no number shows which one is
//     stale, because a later slot is granted while an earlier one is current.
//
// # When things go wrong
//
//	a holder dies                            its slot can be taken when its lease has expired
//	a request dies at the gate               others wait until its lease of the gate expires: Config.GateTTL
//	an operation of the store takes seconds  the gate is renewed while the request takes its slot, and later gates last longer
//	… more than half of Config.GateTTL       the first gate of a Locker can end too early, and its request enters again, because no look has measured the store yet
//	an exclusive request gives up            without an IdempotencyKey it lets others in at once, else after Config.GateTTL, because it may be sent again
//	the answer is lost                       with an IdempotencyKey the same request gets the same share, perhaps with a greater Fence; else it expires
//	… and an exclusive request waits         the resent request waits behind it, and the share that the first one got expires
//	a request is paused at the gate          its slot is given back or granted again: no caller has received it
//	the store's clock jumps forward          leases end early, while clients trust them: the Fence shows which are stale
package shared
