// Package shards spreads shards over the nodes that take part: each is owned by one node at a time,
// evenly, and moves with care. A shard is a name: a tenant, a partition, a customer.
//
//	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: tenants})
//	if err != nil {
//		return err
//	}
//	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
//		return poll(ctx, s.Name, s.Term) // only one node does; ctx ends when ownership does
//	})
//
// Its backend is shards/postgres, on sessions of PostgreSQL. Package shardstest has one in memory, for tests.
// shards/driver is their contract. docs/shards.md says how to run a group; "pglatch shards" shows and changes one,
// through Observe.
//
// # How it works
//
// There is no coordinator. Each node looks, every LookInterval and when its backend says that something
// changed, who takes part and who owns what; computes from that which member is to own each shard;
// claims, by a try-lock, what nobody owns and is its to own; and gives up what is another's to own that is
// alive and has room. What it sees is a hint, and may be old or wrong. The try-lock is the truth.
// docs/adr/0028-shards-without-a-coordinator.md has the rules, and the argument that they settle.
//
//	           claim succeeds          to be given up             work has returned
//	┌──────┐ ────────────────▶ ┌───────┐ ─────────────▶ ┌────────┐ ────────────────▶ released
//	│ free │                   │ owned │  context ends   │ drains │  or DrainTimeout
//	└──────┘                   └───────┘                 └────────┘
//	                               │ session lost, or no renewal in time  │
//	                               ▼                                      ▼
//	                              lost: the context ends first        lost
//
// What a node owns is carried by the sessions of its backend (two, with PostgreSQL), each of which
// is renewed as a whole. The end of one costs what it carries; the rest works on, and the node opens another.
// A call that is slow on one session delays nothing on another.
//
// A node that stops, or drains, gives up in pieces of 32, or a hundredth if that is more: the next when others have claimed the last,
// or after 250 ms. If a backend has no driver.Passer, the next when the last was released, or after 10 ms. The others know what is to be theirs, and
// try to claim it whenever their backend says that something was given up, without a look.
//
// # What it guarantees
//
//   - Two nodes never own one shard, whatever they believe of each other, but for what is said below.
//   - Given up in good order, a shard's context ends first, then its work returns, then it is released.
//   - When nothing is heard any more, the contexts end before the leases can, LossDrain earlier. Err
//     of the context looks at the clock: a process that was stopped finds it ended at the first look.
//   - Terms of a shard rise, on every node.
//   - When faults are over and the lists agree, each shard is owned, and each node has its part by
//     weight, rounded down or up; within the times of ADR 28. Pins and drains come before that, and what a node cannot claim.
//   - A shard whose work fails on every node has an owner, but for hand-overs and at most one LeaseDuration.
//   - A join moves the part of the node that joins, a leave what the leaving one had. No shard moves to even out
//     twice within MinStay, nor more than MovesPerSecond from a node.
//   - Two fleets with different lists do not fight: what one owns stays, what one side alone knows stays there.
//   - Every Acquired is followed by exactly one Released or Lost of the shard.
//   - When Run has returned nothing is owned, and no goroutine of it is left.
//
// # What it does not guarantee
//
//   - When the server itself ends a session, another node may own its shards before this one hears
//     of it. Work that ignores its context goes on after it. Guard what must not be late: a Term is a
//     fencing token.
//   - A node that hangs while its sessions last keeps what it owns. Others pass it over for what is free.
//   - Work that does not end within DrainTimeout may overlap with its successor's, unless KeepUntilDrained is set.
//     This node does not claim the shard again before that work has returned.
//
// # When things go wrong
//
//	a session ends                       contexts of its shards end; Lost; the others work on; a new session
//	renewals fail                        contexts end LossDrain before the lease can; Lost
//	one shard is taken away              its context ends at the next renewal; Lost
//	the backend cannot be reached        Error, each reason in a row once; tried again each LookInterval
//	no attempt can succeed               Run returns, if the node was not a member before; else what it owns is lost when two looks failed so
//	a claim fails                        what it may have got is released; tried again after the next look
//	a claim is too slow (driver.ErrSlow) the next one has a quarter of the names; a single name that is too slow is a claim that fails
//	a release fails                      Error; the shard is free by the end of its lease
//	work returns an error, or panics     WorkFailed; again after Restart's delay; given away in the end
//	work returns nil                     it is done; the shard stays owned
//	work ignores its context             released after DrainTimeout, or kept: see KeepUntilDrained
//	the list cannot be read              Error, each reason in a row once; it stays as it was; asked again after LookInterval
//	no other node would claim a shard    the node that owns it keeps it; its work begins again after Restart's pause: see Config.Restart
//	a pinned shard's work fails          the same
//	a node cannot claim a shard          it announces that, and nobody gives it the shard
//	two nodes have one identity          each shard has one owner still; ErrIdentity, after two leases, where the other is seen to own one
//	a callback panics                    logged and reported to OnError
//	a member takes nothing that is its   others take it after three looks; then it gets one shard at a time, until it claims one
package shards
