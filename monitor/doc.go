// Package monitor shows which advisory locks a PostgreSQL database has, their holders and waiters, and what is
// wrong: as Go values, as JSON, and as a web page.
//
//	m, err := monitor.Open(monitor.Config{DSN: dsn, Namespaces: set})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	http.Handle("/pglatch/", m.Handler()) // GET /pglatch/api/advisory-locks
//	http.Handle("/locks/", m.Page())
//
// It queries PostgreSQL, and asks every process that uses pglatch (package introspect). The processes know the names
// of hashed keys, since when and for what they hold a lock, and which requests wait inside them. From both sources the
// monitor detects deadlocks across processes, stopped holders, leaked locks, and more: see Verdict and
// docs/how-to/incidents.md. Page shows all of it, keeps the last hour in memory (bounded: 5,000 events, 1,500 pictures
// of 40 keys), and changes nothing.
//
// # What it guarantees
//
//   - Monitoring costs little. All viewers share one query and one connection, and each lock is encoded once
//     for all of them. There is never more than one query in Config.MinInterval, 250 ms by default, and none
//     without viewers unless Config.Record is set. An HTTP answer has at most 1,000 locks unless the request
//     asks for more, and says where to continue. The monitor asks processes at most once in 0.9 s. A process
//     that does not answer delays a picture by 0.5 s.
//   - A query has a time limit: 2 s in the server, and 5 s including the connection.
//   - With Config.Fleet it also shows groups of shards, ticks, mailboxes and leases. They are read in the background, at
//     most once in 5 s. Only the first picture waits for them, for at most 2 s.
//   - It never writes to a table, never reads the text of queries, and answers while the program's tables are
//     locked. Its questions are notifications (NOTIFY).
//   - By default only clients on the same host have access; see LoopbackOnly.
//   - It needs no rights. Snapshot.Partial and Snapshot.Hidden report the columns that PostgreSQL hides from
//     its role. GRANT pg_read_all_stats, or pg_monitor, shows all columns. Without it, processes of other roles
//     report "order/…" for "order/42"; see introspect.Config.Readers.
//   - It survives a restart of the server.
//   - It works through a pooler: it prepares no named statement, sends no startup parameter of its own but
//     application_name, and changes no setting for longer than its query.
//
// # What it does not
//
//   - A Snapshot shows the past: do not conclude from it which session holds a lock now. Locks taken and
//     released between two queries are not seen.
//   - PostgreSQL does not record when a lock was taken. Lock.HeldSince names the source of its time: the
//     process that holds the lock, or the first query that saw it. It is not the start of a query, which is
//     what other tools show.
//   - PostgreSQL does not distinguish session-scoped from transaction-scoped locks.
//   - The namespace of a key is derived from its number: another program that takes the same numbers
//     appears under the same name. The entity of a hashed key is known only if a process reports it.
//   - Waiters inside a process that queue for its one session are not visible in the server: a Snapshot has
//     only the first of them, Page shows all.
//   - The answers and pg_locks are from different moments, up to a second apart.
//   - A waiter waits in steps of under a second, and between two steps, for about a round trip, it is in
//     no queue. A waiter that is not the first of its key may therefore be missing from a Snapshot.
//   - The first waiter of a key holds the key's turnstile, another lock, for which the others wait (see
//     docs/reference/postgresql-views.md). They are shown as waiters of the key. While the key is briefly free, a Monitor that
//     did not see it in its previous Snapshot cannot tell whose turnstile it is, and shows an unknown single key. A
//     Snapshot always shows the turnstile of a semaphore that way. Page shows its sessions as waiters of the semaphore,
//     if a process names that.
//
// # Failures
//
//	the database is down or silent    Snapshot: an error; HTTP 503 with Retry-After; the next call tries again
//	the connection was lost           a new one within the same call
//	the role may not see a session    Partial, Hidden; pid, application_name, key and blockers are there
//	a viewer gives up                 only its own wait ends
package monitor
