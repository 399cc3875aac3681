// Package judge checks what tests record of locks, leases, leaderships and shards. The conformance suites use it. Each kind of
// record has one checker:
//
//   - Holds: who held which key from when to when. No two hold it at once, or no more than its slots, and tokens rise.
//   - Terms: the operations of leaders, in the order of their arrival. None comes after one of a later term.
//   - Events: what one node reports. Each leadership ends once, before the next one begins, and terms rise.
//
// The transactions that commit are checked in their database: see package ledgertest.
package judge
