// Package monitor shows which advisory locks a PostgreSQL database has, who holds
// them, who waits, and what is wrong: as Go values, as JSON, and as a page for people.
//
//	m, err := monitor.Open(monitor.Config{DSN: dsn, Namespaces: set})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	http.Handle("/pglatch/", m.Handler()) // GET /pglatch/api/advisory-locks
//	http.Handle("/locks/", m.Page())
//
// It asks PostgreSQL, and every process that uses pglatch (package introspect): they know the names of
// hashed keys, since when they hold a lock and for what, and who waits inside them. From both it finds
// deadlocks across processes, holders that are stopped, leaked locks, and more: see Verdict and
// docs/incidents.md. Page shows it all, keeps the last hour in memory (bounded: 5,000 events, 1,500 pictures of
// 40 keys), and changes nothing.
//
// # What it guarantees
//
//   - Looking costs little: all viewers share one query and one connection, and each lock
//     is encoded once for all of them; an answer over HTTP has 1,000 locks unless it is asked
//     for more, and says where to go on; there is never more than one query in Config.MinInterval, 250 ms by
//     default, and none while nobody looks, unless Config.Record says so. Processes are asked once in
//     0.9 s at most; who does not answer delays a picture by 0.5 s.
//   - A query ends: after 2 s in the server, after 5 s with the connecting.
//   - It never writes to a table, never reads the text of queries, and answers while the
//     program's tables are locked. Its questions are notifications (NOTIFY).
//   - By default only clients on the same host may look; see LoopbackOnly.
//   - It needs no rights. What PostgreSQL hides from its role it says in
//     Snapshot.Partial and Snapshot.Hidden; GRANT pg_read_all_stats, or pg_monitor,
//     shows all. Without it the processes of other roles show "order/…" for "order/42";
//     see introspect.Config.Readers.
//   - It outlives a restart of the server.
//   - It prepares no named statement, sends no startup parameter of its own but
//     application_name, and changes no setting for longer than its query: a pooler
//     may stand between.
//
// # What it does not
//
//   - It is a picture of the past: nothing may be concluded from it about who holds a
//     lock now. Locks taken and released between two queries are not seen.
//   - PostgreSQL does not record when a lock was taken. Lock.HeldSince says where its
//     time comes from: the process that holds it, or the first look; the start of a query, which other
//     tools show, is not it.
//   - PostgreSQL does not distinguish session-scoped from transaction-scoped locks.
//   - The namespace of a key is a reading of its number: another program that takes
//     the same numbers shows under the same name. The entity of a hashed key is known only if a
//     process says it.
//   - Waiters inside a process that queue for its one session are not in the server: a Snapshot has
//     only the head of that queue, Page all of them.
//   - Answers and pg_locks are of moments that differ by up to a second.
//   - Who waits does so in steps of under a second, and between two of them is in no
//     queue for about a round trip: a waiter that is not the first of its key may be
//     missing from a Snapshot.
//   - The first waiter of a key has its turnstile, another lock, for which the others
//     wait (see docs/operations.md). They are shown as waiters of the key. When the
//     key is free for that instant, a Monitor that did not see it in its Snapshot
//     before does not know whose turnstile it is, and shows an unknown single key.
//     The turnstile of a semaphore is always shown so.
//
// # Failures
//
//	the database is down or silent    Snapshot: an error; HTTP 503 with Retry-After; the next call tries again
//	the connection was lost           a new one within the same call
//	the role may not see a session    Partial, Hidden; pid, application_name, key and blockers are there
//	a viewer gives up                 only its own wait ends
package monitor
