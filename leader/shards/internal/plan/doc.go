// Package plan decides which shards a node claims and which it gives up, from its view of all nodes. It is
// pure: no I/O, no goroutine, no clock, no random number.
//
// Targets assign each shard to a member. Each member has a quota, its part of all shards by weight, rounded
// down or up. A member keeps its shards up to its quota. Three kinds of shards go to members with room, by
// weighted rendezvous hashing (hash.go has the exact function): those beyond a quota, those of a draining
// member, and free ones. A Node compares the targets with its shards and moderates the moves.
// docs/adr/0028-shards-without-a-coordinator.md argues that this converges.
//
// The numbers of hash.go are a contract between nodes of different versions. If two nodes disagree
// nevertheless, the worst effects are refused claims and shards that move once more.
package plan
