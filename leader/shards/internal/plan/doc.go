// Package plan decides which shards a node claims and which it gives up, from what it sees
// of all nodes. It is pure: no I/O, no goroutine, no clock, no random number.
//
// Targets say who is to own each shard. Each member has a quota, its part of all shards by weight, rounded
// down or up. A member keeps what it owns up to its quota; what it has too much, what a member
// that drains has, and what nobody owns goes to those who have room, by weighted rendezvous
// hashing (hash.go has the exact function). A Node compares the targets with what it owns, and
// moderates what follows; docs/adr/0028-shards-without-a-coordinator.md has the argument that this settles.
//
// The numbers of hash.go are a contract between nodes of different versions. If two nodes disagree
// all the same, nothing worse happens than claims that are refused and shards that move once more.
package plan
