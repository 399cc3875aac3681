// Package introspect asks every process of a database which locks it holds and what it waits for.
//
// PostgreSQL does not record when an advisory lock was granted, nor to which caller. Its views show a waiter
// of pglatch for less than a second, because waits are cut into steps. The processes have this information.
// Each program that opens a Locker or takes part in an election answers questions about itself:
//
//   - the keys that it holds and waits for, with their names
//   - since when, for what purpose, and on which session
//   - its state in its elections
//
// # How it works
//
// A process listens on the channel "pglatch_ask" (LISTEN, PostgreSQL manual) with one connection for all its
// Lockers, elections and shards in one database. It opens the connection a second after the first of them
// connected, and closes it when none has had a connection for a while. So a short command opens none. The
// connection is not a lock session, and its failure does not affect any lock. It sends no statement while
// nobody asks.
//
// Ask sends a question (NOTIFY) with the name of a channel of its own, on which the processes answer. Nothing
// is stored. A process that is stopped or cut off does not answer: Ask reports its session as silent.
//
// LISTEN and NOTIFY do not work on a standby, nor through a pooler in transaction mode. There, no
// process answers, and locks work as usual.
//
// # Who can read it
//
// Any role that may connect to the database can ask. An answer has no query text and no credentials. It shows
// the keys' entities, such as "order/42", and the labels of the locks to superusers and to the members of
// these roles: the process' own role, pg_read_all_stats, and the roles in Config.Readers. All other roles
// receive "order/…", no label, and the lock's tag, which pg_locks shows them too. With Config.HideEntities,
// no role sees entities and labels. With Config.Off, the process does not answer.
//
// PostgreSQL lets every role of a database listen on every channel. So each question carries a public key,
// and the process encrypts its answer for that key (RFC 9180: X25519, HKDF-SHA256, AES-128-GCM). Questions
// themselves are readable.
//
// A Request asks a process to do something. The process rejects it unless its Config allows it and the role
// that asks could end the process' sessions anyway. Such a role is the process' own role, a member of it or
// of pg_signal_backend, or a superuser (pg_terminate_backend, PostgreSQL manual, section 9.28.2).
// PostgreSQL, not the request, says which role asks. A process sends at most a hundred answers a second in
// total.
package introspect
