// Package advisorytest is an in-memory server for tests of code that takes
// locks with package advisory. The tests need no PostgreSQL and no network, and
// do not wait for real time.
//
//	server := advisorytest.NewServer()
//	a, err := server.Open(advisory.Config{}) // one process
//	b, err := server.Open(advisory.Config{}) // another one
//
// Only the server is a stand-in. The Lockers are those of package advisory, so
// queues, hand-over, re-entrance, deadlocks, timeouts, statistics and traces
// are the real ones. The server follows PostgreSQL's rules for advisory locks:
//
//   - Locks belong to sessions and end with them.
//   - A lock is exclusive or shared.
//   - Each key has one queue, in order of arrival.
//   - A try does not overtake a waiter.
//
// Tests can end sessions with Kill and KillSessions, make the server
// unavailable with SetUnavailable, and inspect the locks with Holders, Waiters
// and Locked. Everything works in a testing/synctest bubble, where waits cost
// no real time. Open and close the Lockers inside the bubble.
//
// What differs from PostgreSQL:
//
//   - A holder learns of the end of its session at once. No session is ever in
//     doubt, and Stats counts no pings, watches or pid checks.
//   - LockTx and LockSQLTx take locks in a transaction of the caller, so they
//     need a real PostgreSQL server.
//   - The lock table is never full. Only Config.MaxLocks limits the locks.
package advisorytest
