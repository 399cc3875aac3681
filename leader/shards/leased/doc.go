// Package leased spreads shards over nodes by fenced leases, wherever package lease keeps them: behind a
// lock server, in PostgreSQL, in etcd, in memory for tests.
//
//	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	defer client.Close()
//	backend, err := leased.New(client, leased.Config{Name: "tenants"})
//	…
//	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: tenants})
//	…
//	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
//		return poll(ctx, s.Name, s.Term.Uint64()) // what is written to refuses a lesser term
//	})
//
// On PostgreSQL, leader/shards/postgres is the better choice where two connections can be kept open: idle
// nodes write nothing, a loss is heard of at once, and transactions are guarded. This package needs no session, and so
// goes through any pooler; a program elsewhere needs only HTTP, and on lease/etcd ownership survives the loss of any machine.
//
// # How it works
//
//	tenants/shard/acme       a lease for each shard: its token is the Term, its holder the owner's identity
//	tenants/group/member/…   one for each session of a node: weight, list, draining, and how often it claimed or released
//	tenants/group/pin/acme   a Pin, tenants/group/drain/node-1 a Drain
//	tenants/group/bell       who changes something takes it and gives it up, which those hear who wait for that
//
// In names, what leases cannot have is percent-encoded, and so are slashes. A token of a lock server needs the right hold for the
// prefix tenants/.
//
// A node has one session, and that one heartbeat: there is no connection whose end would cost what it
// carries, since leases are lost one by one. On a lease.BatchRenewer it is one operation for all that the node owns; a
// *leasehttp.Client sends a request for each 300 or so, and other stores are asked for each lease.
//
// A Look lists the group. As long as nobody there has changed anything, and all owners are members, that is all. Else it
// lists the shards, too: over HTTP a request for each 1,000. So an idle node of a group of 10,000 lists a few records every
// LookInterval, and all of them once in four LeaseDurations.
//
// Nodes hear of each other at once on a store that is a lease.Messenger (PostgreSQL, for one connection more, and etcd) and through
// a lock server, by a request that waits; else with the next Look.
//
// # What it guarantees
//
// What package shards says, where the store keeps what package lease says. And:
//
//   - An ownership is one lease: Renew and Release match its holder, id and token, so none goes on in a later
//     one, of the same identity either. A Term is granted once.
//   - A lease that a Claim got lasts for as long as its session is believed to, also if a renewal overtook
//     the claim. A store that grants less than the LeaseDuration is refused. One that grants more, as etcd which counts whole
//     seconds, is the later to give a dead node's shards to others.
//   - What is not known to be released is never renewed again: it ends by the LeaseDuration, or with the next
//     call that reaches the store.
//
// # What it does not guarantee
//
//   - That a loss is heard of at once: a lease that somebody else ended is noticed by the next renewal. Guarded
//     writes have no counterpart here: the Term is the fence, if what is written to compares it. In PostgreSQL, the Guard of
//     lease/postgres does.
//   - That pins and drains last for ever, as nothing in a lease store does. They are leases for 24 hours,
//     which every member renews: they last as long as anybody takes part, and six hours longer at least. A lock
//     server whose policy allows less than 24 hours for their names refuses them.
//   - One round trip for many shards: a claim or release is a request for each, 64 at a time, and a few for all.
//
// # When something fails
//
//	a shard's lease is over                 that shard is lost: the next renewal says so
//	the member's lease is over              the session is lost, and all that it carries
//	the store is busy with one renewal      that one is tried again, alone
//	the store is busy (429, 503)            claims go on with what it allows in two thirds of RenewTimeout, and with the
//	                                        rest after the next Look; renewals go before them
//	it is slow                              the same
//	the answer to a claim is lost           all of it is released: by its idempotency key a request finds what it got
//	... and that fails too                  it ends after the LeaseDuration
//	a release fails                         nobody renews it; it is tried again before the shard is claimed again
//	others cannot be told                   the next Look of this node tells them
//	a TTL policy or a size refuses it       *lease.InvalidError, with what is allowed; tried again
package leased
