// Package pgsession provides one watched PostgreSQL session, and the pool of such sessions. It contains the SQL
// that takes and releases locks. The SQL of elections and shards is in their backends, and runs through Query,
// QueryWithin and Take.
//
// A session advisory lock lives exactly as long as its session, so a session is a lease that the server
// enforces. idle_session_timeout ends the session after T without a statement. A ping is sent every T/3 (or
// when the owner pings: Listen). The owner relies on its locks only until its deadline, (start of the last
// answered statement) + T - margin. The state is held while answers come in time, and doubtful while a ping is
// overdue. It is lost, permanently, from the server's end of the session, or from the deadline.
//
//	        answer in time
//	        ┌──────────┐
//	        ▼          │
//	──▶   held ──▶ doubtful ──▶ lost
//	        │   ping     deadline ▲
//	        │  overdue            │
//	        └─────────────────────┘
//	   server ended it, another backend answered
//
// Rules that every statement obeys:
//
//   - It runs without a context of the caller's. A cancelled statement may have taken effect, so callers cancel
//     waits with Interrupt and read the answer.
//   - It has a client-side deadline; past it the socket is closed.
//   - Its answer carries pg_backend_pid(). Another pid means that a pooler moved us to another server session:
//     all locks are lost.
//   - After an error a lock may still be held: PostgreSQL can grant a lock and fail the statement in one
//     instant (bug #17686 on the pgsql-bugs list). Such an error is resolved by asking the server which locks
//     the session holds. Inside a wait the session's own pg_try_advisory_lock answers that: it returns true if
//     and only if the lock is held when the call returns. It may count the lock twice, so the lock is then
//     released.
//
// Operations on locks, pings and questions are batches of prepared statements, which send and step transfer
// over the wire. Only a wait, and the statements of Query, QueryWithin and Take, are SQL text. A session only
// counts its locks: its owner and the server know which ones they are.
//
// The batches of a session that holds many locks share a transaction (ADR 20), because the server walks all of
// the session's locks at the end of each one.
//
// A wait blocks in the server's queue, so a hand-over is as fast as the server. But it waits only in steps
// below deadlock_timeout: a blocked statement holds a snapshot, and CREATE INDEX CONCURRENTLY waits for every
// older snapshot. A wait step is a DO block that catches its own timeout. An error that reaches the client
// would appear in the server's log, several times a second.
package pgsession
