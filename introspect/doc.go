// Package introspect asks every process of a database what it holds and what it waits for.
//
// PostgreSQL does not record when an advisory lock was granted, nor for whom, and a waiter of
// pglatch shows there for less than a second, because waits are cut into steps. The processes
// know. Each program that opens a Locker or takes part in an election answers questions about
// itself: the keys that it holds and waits for with their names, since when, for what, on which
// session, and how it stands in its elections.
//
// # How it works
//
// A process listens on the channel "pglatch_ask" (LISTEN, PostgreSQL manual) with one connection
// for all its Lockers, elections and shards in one database. The connection is made a second after the
// first of them connected, and closed when none has had a connection for a while, so that a
// short command makes none; it is no lock session, and nothing that happens to it touches a lock.
// It sends no statement while nobody asks. Ask sends a question (NOTIFY) with the name of a
// channel of its own, on which the processes answer. Nothing is stored. A process that is stopped
// or cut off does not answer: Ask names its session as silent.
//
// LISTEN and NOTIFY do not work on a standby, nor through a pooler in transaction mode; then
// nobody answers, and locks work as always.
//
// # Who can read it
//
// Any role that may connect to the database can ask. An answer has no query text and no credentials. It shows the keys' entities,
// as "order/42", and the labels of the locks to members of the process' own role, of pg_read_all_stats, and of the roles in
// Config.Readers, and to superusers. All other roles receive "order/…", no label, and the lock's tag, which pg_locks shows
// them too. With Config.HideEntities no role sees entities and labels. With Config.Off the process does not answer.
//
// PostgreSQL lets every role of a database listen on every channel. So each question carries a public key, and the process encrypts
// its answer for that key (RFC 9180: X25519, HKDF-SHA256, AES-128-GCM). Questions themselves are readable.
//
// A Request, which asks a process to do something, is refused unless the process' Config allows
// it and the role that asks could end the process' sessions in any case: the same role, a member
// of it, of pg_signal_backend, or a superuser (pg_terminate_backend, PostgreSQL manual, section
// 9.28.2). Who asks is told by PostgreSQL, and not by the request. A process sends a hundred answers a
// second at most, whoever asks.
package introspect
