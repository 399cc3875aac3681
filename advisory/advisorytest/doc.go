// Package advisorytest is an in-memory server for tests of code that takes locks
// with package advisory: no PostgreSQL, no network, no wait for real time.
//
//	server := advisorytest.NewServer()
//	a, err := server.Open(advisory.Config{}) // one process
//	b, err := server.Open(advisory.Config{}) // another one
//
// Only the server is a stand-in. The Lockers are those of package advisory, so
// queues, hand-over, re-entrance, deadlocks, timeouts, statistics and traces are
// the real ones. The server keeps PostgreSQL's rules for advisory locks: locks
// belong to sessions and end with them, two modes, one queue per key in order of
// arrival, a try that does not overtake who waits.
//
// Tests can end sessions with Kill and KillSessions, take the server away with
// SetUnavailable, and look at what is held with Holders, Waiters and Locked.
// Everything works in a testing/synctest bubble, where waits cost no time; open
// and close the Lockers inside it.
//
// What differs from PostgreSQL:
//
//   - A holder learns of the end of its session at once. No session is ever in
//     doubt, and Stats counts no pings, watches and pid checks.
//   - LockTx and LockSQLTx lock in a transaction of the caller's, and so need
//     a PostgreSQL.
//   - The lock table is never full, but for Config.MaxLocks.
package advisorytest
