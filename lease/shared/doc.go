// Package shared has leases that several hold at once: a lock with n slots (a semaphore),
// and one that readers share and a writer has alone. It is made of ordinary leases, over any
// lease.Store:
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
// A share is renewed and released as any lease, by its claim, whose name says the slot.
// Through a lock server, lease/leasehttp does all this: AcquireOptions.Slots, Shared and
// Exclusive. The server leases the names of slots in no other way.
//
// # What it guarantees
//
//   - At most n leases of a lock have not ended at any time, by the store's clock, if nobody
//     asks for more than n slots.
//   - While somebody has a lock by an exclusive request, nobody else has a slot of it, or has it
//     alone.
//
// Both rest on S1 and S3 of package lease alone. As there, a holder that is paused does not
// see its lease end.
//
// Who asks for other numbers of slots of one lock competes for the same slots: a request for n
// is granted when less than n are taken, whoever took them, so the greatest number that
// anybody asks for is the bound for all. An ordinary lease of the lock's own name is another
// lock: it keeps nobody out here.
//
// # How it works
//
// Slot 2 of the lock job is a lease of the name job::slot::0002, and job::slot::0000 is the
// gate.
//
//	a slot:       lease the gate ─ look at the slots ─ lease the lowest that is free ─ release the gate
//	the whole:    lease the gate ─ look at the slots, until none is taken ─ renew the gate: it is the lease
//
// Nobody looks, takes, or is alone without the gate. A request for a slot has it when its
// release of the gate succeeded, which proves that nobody else had the gate since it looked;
// else it gives the slot back. So it is with the renewal of an exclusive request. A slot whose
// lease expired is leased once more before somebody is alone, so that a renewal of it that is
// still under way fails. A LockDelay and a MaxLifetime are of the lease alone, and not of who
// waits at the gate for it: then a lease with them takes the gate's place in one operation, in place of
// the renewal, if the store is a lease.HandOverer.
//
// It costs four operations of the store, and those of one lock's requests follow each other. A slot
// for a request with an IdempotencyKey costs a fifth, after the gate was released: it writes the Fence into the slot's
// metadata, as pglatch.fence. A sending of the request that is not let through the gate finds its slot by that. So that
// it does not cost more the more slots a holder has, the metadata of a slot have a digest of the IdempotencyKey, of 32
// bits, as pglatch.request.
//
// # Waiting
//
// A request that waits for a slot keeps the gate meanwhile, and so does an exclusive one: who
// comes later waits at the gate. So neither do readers starve a writer, nor writers a reader,
// nor requests for few slots those for many. In what order the gate is given is up to the
// store: a lock server's line is first come, first served; another store is asked again and again.
//
// A request that does not wait is refused at once if the lock is taken, or an exclusive request
// waits; if others pass the gate, it waits for them, a second at most.
//
// # Fencing tokens
//
// No store has tokens that rise over several names: the Token of a share rises over the leases
// of its slot alone. Share.Fence is the gate's token, of which there is one for each share, so it
// rises over all shares of the lock, whatever their slots. It tells a stale holder:
//
//   - What a reader and a writer use keeps the greatest Fence that either showed, and the greatest
//     of a writer. It refuses a write below the first, and a read below the second.
//   - What belongs to one slot, such as a device, keeps the greatest Token of the slot, and refuses
//     those below.
//   - Among several who have slots of one lock at once, no number says who is stale: a later one
//     is granted while the earlier one is current.
//
// # When things go wrong
//
//	a holder dies                            its slot can be taken when its lease has expired
//	a request dies at the gate               nobody else is let in until its lease of the gate expires: Config.GateTTL
//	an exclusive request gives up            without an IdempotencyKey it lets others in at once, else after Config.GateTTL: it may be sent again
//	the answer is lost                       with an IdempotencyKey the same request gets the same share, perhaps with a greater Fence; else it expires
//	… and an exclusive request waits         the request waits behind it, and what it had got expires
//	a request is paused at the gate          its slot is given back, or got again: nobody was told that it has it
//	the store's clock jumps forward          leases end early, while clients trust them: the Fence tells them
package shared
