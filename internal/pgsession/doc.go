// Package pgsession is one watched PostgreSQL session, and the pool that such
// sessions come from. SQL that takes and releases locks lives here; that of elections and
// shards is beside their backends, and runs through Query, QueryWithin and Take.
//
// A session advisory lock lives exactly as long as its session, so a session is
// a lease that the server enforces: idle_session_timeout ends it after T without
// a statement, a ping goes out every T/3 (or when its owner says so: Listen), and its owner relies on its locks
// until its deadline, (start of the last answered statement) + T - margin and not later. The
// state is held while answers come in time, doubtful while a ping is overdue,
// and lost from the server's end of the session, or from the deadline, for ever.
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
//   - It runs without a context of the caller's. A cancelled statement may have
//     taken effect, so callers cancel waits with Interrupt and read the answer.
//   - It has a client-side deadline; past it the socket is closed.
//   - Its answer carries pg_backend_pid(). Another pid means that a pooler moved
//     us to another server session: everything held is lost.
//   - An error after which a lock may be held is resolved by asking the server
//     what the session holds (PostgreSQL grants a lock and fails the statement in
//     one instant; bug #17686 on the pgsql-bugs list). Inside a wait it is the
//     session's own pg_try_advisory_lock that says so: true if and only if the lock
//     is held when the call returns. That may count it twice, so it is given back.
//
// Operations on locks, pings and questions are batches of prepared statements, which
// send and step bring through the wire; only a wait, and what Query, QueryWithin and
// Take run, is SQL text. What the session holds is a count: which locks they are is for its owner
// to know, and for the server to say.
//
// The batches of a session that holds many locks share a transaction (ADR 20), because the
// server walks all of the session's locks at the end of each one.
//
// A wait blocks in the server's queue, so a hand-over is as fast as the server,
// but only in steps below deadlock_timeout: a blocked statement holds a
// snapshot, and CREATE INDEX CONCURRENTLY waits for every older snapshot. A wait step
// is a DO block that catches its own timeout, because an error that reaches the
// client would be written to the server's log, several times a second.
package pgsession
