// Package shared provides leases that several clients hold at once: a lock with n slots (a
// semaphore), and one that readers share and a writer has alone. It is built from ordinary leases,
// over any lease.Store:
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
// The server grants leases of slot names only in this way.
//
// # What it guarantees
//
//   - At any time, by the store's clock, at most n leases of a lock have not ended, if no request
//     asks for more than n slots.
//   - While a client has a lock by an exclusive request, nobody else has a slot of it or has it
//     alone.
//
// Both depend only on S1 and S3 of package lease. As there, a paused holder does not see its lease
// end.
//
// Requests for different numbers of slots of one lock compete for the same slots. A request for n
// is granted if fewer than n slots are taken, whoever took them. So the greatest number that any
// request asks for is the bound for all. An ordinary lease of the lock's own name is another lock:
// it keeps nobody out here.
//
// # How it works
//
// Slot 2 of the lock job is a lease of the name job::slot::0002; job::slot::0000 is the gate.
//
//	a slot:       lease the gate ─ look at the slots ─ lease the lowest that is free ─ release the gate
//	the whole:    lease the gate ─ look at the slots, until none is taken ─ renew the gate: it is the lease
//
// A request looks at slots, takes one, or gets the whole lock only while it has the gate. A request
// for a slot has it once its release of the gate succeeded, which proves that nobody else had the
// gate since it looked. Else it gives the slot back. For an exclusive request, the renewal of the
// gate is the proof. Before an exclusive request is granted, each slot whose lease expired is
// leased once more, so that a renewal in progress fails.
//
// A LockDelay and a MaxLifetime apply to the lease alone, not to a request that waits at the gate
// for it. So, on a lease.HandOverer, a lease with them replaces the gate in one operation, instead
// of the renewal.
//
// A share costs four operations of the store, and the requests of one lock run one after the other.
// A slot for a request with an IdempotencyKey costs a fifth operation, after the gate was released:
// it writes the Fence into the slot's metadata, as pglatch.fence. A resent request that does not
// pass the gate finds its slot by this Fence. The slot's metadata also have a digest of the
// IdempotencyKey, of 32 bits, as pglatch.request. So the cost does not grow with the number of
// slots of a holder.
//
// # Waiting
//
// A request that waits for a slot keeps the gate meanwhile, and so does an exclusive one: later
// requests wait at the gate. So readers do not starve a writer, a writer does not starve readers,
// and requests for few slots do not starve those for many. The store decides the order at the gate:
// a lock server's queue is first come, first served. On another store, each request retries.
//
// A request that does not wait is refused at once if the lock is taken, or if an exclusive request
// waits. If others only pass the gate, it waits for them, for at most a second.
//
// # Fencing tokens
//
// No store has tokens that rise across several names, so the Token of a share rises only over the
// leases of its slot. Share.Fence is the gate's token. Each share has its own, so it rises over all
// shares of the lock, whatever their slots. It identifies a stale holder:
//
//   - A resource that readers and writers use keeps two numbers: the greatest Fence of
//     all, and the greatest Fence of a writer. It refuses a write below the first, and a
//     read below the second.
//   - A resource that belongs to one slot, such as a device, keeps the greatest Token of the slot,
//     and refuses those below.
//   - Among several clients that have slots of one lock at once, no number says which one is stale.
//     A later one is granted while the earlier one is current.
//
// # When things go wrong
//
//	a holder dies                            its slot can be taken when its lease has expired
//	a request dies at the gate               others wait until its lease of the gate expires: Config.GateTTL
//	an operation of the store takes seconds  the gate is renewed while the request takes its slot, and later gates last longer
//	an exclusive request gives up            without an IdempotencyKey it lets others in at once, else after Config.GateTTL: it may be sent again
//	the answer is lost                       with an IdempotencyKey the same request gets the same share, perhaps with a greater Fence; else it expires
//	… and an exclusive request waits         the request waits behind it, and the share it had got expires
//	a request is paused at the gate          its slot is given back, or got again: no caller has received it
//	the store's clock jumps forward          leases end early, while clients trust them: the Fence tells them
package shared
