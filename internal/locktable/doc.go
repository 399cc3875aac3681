// Package locktable is the state machine of a Locker: which requests wait for which locks, what is asked of the server on
// which connection, and who gets a lock next.
//
// The machine is pure. It has no clock, no goroutine, no I/O, no context and calls no code of a user. A carrier feeds it events:
// a method of Table each. An event appends commands to the table, which the carrier reads with Commands and carries out:
// make a connection, wait on one, settle a request, end the locks of a lost connection. Times are numbers that
// the carrier passes. The carrier holds one mutex from the first event to the last command.
//
// # States
//
// A Key is what the process knows of one lock. It exists while somebody holds or wants the lock.
//
//	Free      nothing is under way
//	Asking    the server is asked for it, or will be when its connection is there
//	Starved   no connection has room for it
//	Pausing   it is not asked for a moment, because connections died under it, or it is tried as a slot
//	Waiting   another process holds it, and this one waits: at the server, or polling
//	Held      requests of this process have it
//	Returning it is being given back
//
// A Conn is one connection, and the keys that live on it.
//
//	Making    it is being made; operations that are meant for it wait
//	Unwanted  it is being made, and nobody needs it any more
//	Idle      nobody uses its session
//	Busy      the carrier drives it, or a goroutine of the carrier waits on it
//	Lent      the carrier asks a question on it
//	Ended     it is lost
//
// # Invariants
//
//   - A process has a lock at the server once at most, and one operation about it is under way at most. PostgreSQL lets a session in
//     again to a lock that it has (PostgreSQL manual, section 13.3.5), so that two holders of one process would meet there.
//     There is one Key for each tag. Only ask and the wait that follows its refusal request the lock, and both leave the phase Free.
//   - Holders that exclude each other never hold one key at the same time.
//   - Each request is settled once. If the server answers and holders release, each is settled in the end.
//   - Each lock that was granted is given back once, or ends with its connection.
//   - When nobody holds or wants anything, the table is empty.
//
// A test visits every state that a small table can reach, and checks these in each of them. What carriers really tell their tables, in the tests of
// package advisory and in integration/history, is told to a second table, and must be accepted: see Record and internal/test/tabletrace.
package locktable
