// Package shards spreads shards evenly over the nodes of a group. One node at a time owns each shard, and
// shards do not move without a reason. A shard is a name: a tenant, a partition, a customer.
//
//	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: tenants})
//	if err != nil {
//		return err
//	}
//	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
//		return poll(ctx, s.Name, s.Term) // only one node does; ctx ends when ownership does
//	})
//
// The backend for production is shards/postgres, which uses sessions of PostgreSQL. Package shardstest has an
// in-memory backend for tests. shards/driver is the contract of both. docs/how-to/operate-shards.md describes
// how to run a group. "pglatch shards" shows a group through Observe, and changes it through the
// driver.Operator of its backend.
//
// # How it works
//
// There is no coordinator. Each node acts every LookInterval, and when its backend reports a change:
//
//   - It lists the members and the owners of the shards.
//   - It computes the member that should own each shard.
//   - It claims, by a try-lock, the free shards that it should own.
//   - It gives up the shards that another member should own, if that member is alive and has room.
//
// A node's view of the group is only a hint, and may be old or wrong. The try-lock decides.
// docs/adr/0028-shards-without-a-coordinator.md has the rules, and argues that they converge.
//
//	           claim succeeds          to be given up             work has returned
//	┌──────┐ ────────────────▶ ┌───────┐ ─────────────▶ ┌────────┐ ────────────────▶ released
//	│ free │                   │ owned │  context ends   │ drains │  or DrainTimeout
//	└──────┘                   └───────┘                 └────────┘
//	                               │ session lost, or no renewal in time  │
//	                               ▼                                      ▼
//	                              lost: the context ends first        lost
//
// The sessions of a node's backend (two, with PostgreSQL) carry its shards. Each session is renewed as a
// whole. If one ends, the node loses only the shards on it. Work for the other shards continues, and the
// node opens another session. A slow call on one session delays nothing on another.
//
// A node that gives up many shards does so in batches of 32, or of a twentieth of them if that is more, with
// 75 ms between two batches. It notifies the other nodes that it leaves, and which shards it releases. They
// claim their parts of these shards without querying the backend first.
//
// # What it guarantees
//
//   - Two nodes never own one shard, even if their views of each other differ, with the exceptions below.
//   - In an orderly hand-over, a shard's context ends first, then its work returns, then the shard is
//     released.
//   - When the backend stops answering, the contexts end LossDrain before the leases can. Err and
//     Done of the context check the clock: after the process was stopped, the first check finds the
//     context ended.
//   - Terms of a shard rise, on every node.
//   - When faults are over and the lists agree, every shard is owned. Each node has its part by weight, rounded
//     down or up. ADR 28 states how long this takes. Pins, drains and shards that a node cannot claim take
//     precedence over these parts.
//   - Even a shard whose work fails on every node has an owner, except during hand-overs and in gaps of one
//     LeaseDuration at most.
//   - When a node joins, only its part moves. When a node leaves, only its shards move. For balance, no shard
//     moves twice within MinStay, and a node gives up no more than MovesPerSecond.
//   - Two fleets with different lists do not fight over shards. A shard that either fleet owns does not
//     move for that reason. A shard that only one fleet knows stays in that fleet.
//   - Every Acquired is followed by exactly one Released or Lost of the shard.
//   - When Run has returned, the node owns nothing, and no goroutine of Run is left.
//
// # What it does not guarantee
//
//   - When the server itself ends a session, another node may own its shards before this node learns of it.
//     Work that ignores its context continues after that. Guard writes that must not come late: a Term is a
//     fencing token.
//   - A node that hangs while its sessions last keeps its shards. The others give it no free
//     shards.
//   - Work that does not end within DrainTimeout may overlap with the next owner's work, unless
//     KeepUntilDrained is set. This node does not claim the shard again before that work has returned.
//
// # When things go wrong
//
//	a session ends                       contexts of its shards end; Lost; work on other sessions continues; a new session
//	renewals fail                        contexts end LossDrain before the lease can; Lost
//	one shard is taken away              its context ends at the next renewal; Lost
//	sessions keep ending early           from the first one that lasted less than four leases, pauses that double, up to eight leases; Error with the remedy, if the backend is slow
//	the backend cannot be reached        Error, consecutive repeats not reported; retried each LookInterval; after attempts that time out, pauses that double, up to four leases
//	no attempt can succeed               Run returns, if the node was not a member before; else its shards are lost after two such failures
//	a claim fails                        shards that it may have got are released; retried after the next look
//	a claim is too slow (driver.ErrSlow) the next one has a quarter of the names; a claim of a single name that is too slow counts as failed
//	a release fails                      Error; the shard is free by the end of its lease
//	work returns an error, or panics     WorkFailed; restarted after Restart's delay; given away when Restart allows no further attempt
//	work returns nil                     the work is done; the node keeps the shard
//	work ignores its context             released after DrainTimeout, or kept: see KeepUntilDrained
//	the list cannot be read              Error, consecutive repeats not reported; the list stays; retried after LookInterval
//	no other node would claim a shard    the node that owns it keeps it; its work begins again after Restart's pause: see Config.Restart
//	a pinned shard's work fails          the same
//	a node cannot claim a shard          it announces that, and no node gives it the shard
//	two nodes have one identity          each shard still has one owner; ErrIdentity after two lease durations, on a node that sees the other own a shard
//	a callback panics                    logged and reported to OnError
//	a member ignores its free shards     others take them after three looks; then it gets one shard at a time, until it claims one
package shards
