// Package locktable is the state machine of a Locker. It decides which requests wait for which locks, which operations
// go to the server on which connection, and which request gets a lock next.
//
// The machine is pure. It has no clock, goroutine, I/O or context, and calls no user code. A carrier feeds it events:
// each is a method of Table. An event appends commands to the table. The carrier reads them with Commands and executes
// them: make a connection, wait on one, settle a request, end the locks of a lost connection. Times are numbers that
// the carrier passes. The carrier holds one mutex from the first event to the last command.
//
// # States
//
// A Key is this process's state of one lock. It exists while a request holds or wants the lock.
//
//	Free      no operation is under way
//	Asking    it is requested from the server, or will be when its connection is ready
//	Starved   no connection has room for it
//	Pausing   it is briefly not requested, because connections died under it, or it is tried as a slot
//	Waiting   another process holds it, and this one waits: at the server, or polling
//	Held      requests of this process have it
//	Returning it is being released
//
// A Conn is one connection, and the keys that live on it.
//
//	Making    it is being made; its operations wait
//	Unwanted  it is being made, and is no longer needed
//	Idle      its session is unused
//	Busy      the carrier drives it, or a goroutine of the carrier waits on it
//	Lent      the carrier queries on it
//	Ended     it is lost
//
// # Invariants
//
//   - A process holds a lock at the server at most once, and has at most one operation on it under way. PostgreSQL
//     grants a lock again to the session that has it (PostgreSQL manual, section 13.3.5), so two holders of one process
//     would meet there. There is one Key for each tag. Only ask, and the wait after its refusal, request the lock. Both
//     take the key out of phase Free.
//   - Holders that exclude each other never hold one key at the same time.
//   - Each request is settled once. If the server answers and holders release, each is settled eventually.
//   - Each granted lock is released once, or ends with its connection.
//   - When there are no holders and no requests, the table is empty.
//
// A test visits every state that a small table can reach, and checks these invariants in each. The events of real
// carriers, in the tests of package advisory and in integration/history, are replayed on a second table, which must
// accept them: see Record and internal/test/tabletrace.
package locktable
