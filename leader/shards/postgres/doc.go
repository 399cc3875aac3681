// Package postgres spreads shards over nodes by means of PostgreSQL's session advisory locks, counts the
// terms of shards, and guards the transactions of their work.
//
//	backend, err := postgres.New(postgres.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true})
//	…
//	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Shards: tenants})
//	…
//	err = node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
//		return postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error { // commits in this term, or not at all
//			_, err := tx.Exec(ctx, "UPDATE tenant SET polled_at = now() WHERE name = $1", s.Name)
//			return err
//		})
//	})
//
// # How it works
//
// A node has two connections of its own, each with half of its shards. The session that has a shard's lock
// owns the shard. A node is a member while one of its sessions holds the lock of the members, in shared
// mode.
//
//	node a                     PostgreSQL                                    node b
//	┌──────────────┐           pg_locks            pglatch_shard
//	│ connection 1 │─ lock ──▶ tenant/1, tenant/2  1: term 1.7  2: term 1.3   ┌──────────────┐
//	│ connection 2 │─ lock ──▶ tenant/3            3: term 1.9                │ connection 1 │
//	└──────────────┘                               4: term 1.2  ◀── lock ─────│ connection 2 │
//	       ▲                                                                  └──────────────┘
//	       └───────────── NOTIFY: shards became free, somebody came, left, announced or pinned ───────┘
//
// The calls send:
//
//   - Claim is one statement for up to a thousand names. It tries the locks of the names, and increments the
//     term of each shard whose lock it got. It writes only the rows of those shards: if nothing changes,
//     nothing is written.
//   - Look is one statement over pg_locks, the announcements of members and the orders of operators. It returns
//     a digest. If the node knows that digest already, it returns nothing else.
//   - Renew is a ping. The server ends a session that was silent for the duration of the lease, and releases
//     its locks, without the client's help.
//   - Release and Leave release locks and send a notification, which for Release contains the names
//     of the shards. A claim sends none.
//
// An idle node with a lease of 15 s sends 44 statements per minute, however many shards there are: 24
// renewals and 20 looks. Its sessions are like those of elections in package leader/postgres. search_path,
// isolation, timeouts and other defaults of a role or a database have no effect on them.
//
// # Names and keys
//
// The shard "7" of the namespace 7=tenant is the lock pg_advisory_lock(7, 7). The shard "acme" is a lock on a
// hash of 48 bits next to the namespace's number (package namespace). Nothing else should take locks in that
// namespace: if work takes the lock of its own shard, it waits for itself.
//
// Among 10,000 hashed names, two have the same key with a probability of 2 in ten million. They are never
// confused: the name that was claimed first keeps the key permanently, and a claim of the other name fails
// with a *ClashError. A UUID has the same key in upper and lower case. If somebody edits the key in a row,
// the shard is lost, and its next claim corrects the key.
//
// # Terms and guards
//
// Each shard that was ever claimed has a row in the table of terms. The statement that gets the lock also
// increments the term, and commits before the claim is answered. So the terms of a shard rise on every node,
// across crashes, restarts, promotions of standbys and restores, as far as package leader/postgres guarantees
// that for elections.
//
// One sequence for the whole group would also give rising terms, without any rows. But a view needs the names
// of shards, and a lock has no name. A guard needs a value that the next claim changes:
//
//	guard            row locked FOR SHARE, term as expected ─ writes ─ commit
//	next claim       lock granted ─ row locked by somebody: lock given back, not claimed     ─ row free: term + 1
//	guard of before                                                                            another term: refused
//
// So a guarded transaction commits before the next term begins, or not at all. A claim does not wait for
// transactions. It skips a shard with such a transaction under way, and the node claims that shard later.
// If that was the only shard of the claim, the error is a *GuardedError.
//
// A node may be stopped or cut off between two statements. The settings that Guard makes for its transaction
// then end the session after the duration of the lease. A node may also stop in the middle of a statement,
// such as COPY or a query with a big result. Then a claim ends the session of the transaction after
// Config.GuardTimeout, if its role may do so.
//
// In addition to the row, all guards of a shard share a lock. Through that lock a claim sees which sessions
// have guards. The *GuardedError names the session, and the right that is missing to end it.
//
// # The lock table
//
// Every shard is a lock, and all databases of a server share one lock table. Its size is
// max_locks_per_transaction × (max_connections + max_prepared_transactions), 6,400 by default, plus a
// reserve. When it is full, no session can do anything. So a claim takes no more locks while the server has
// Config.MaxLocks of them, three quarters of the table by default.
//
// A node counts the locks again after a second, or after it has taken a sixteenth of what was free. It
// claims the shards that fit. If none fits, the error is a *BudgetError. For 10,000 shards on a server of
// 100 connections, set max_locks_per_transaction to 256.
//
// # When something fails
//
//	server ends a session         its half of the shards is lost at once; the node opens another session
//	server restarts               all shards are lost, and claimed again in greater terms
//	network is cut                renewals fail; contexts end before the lease can; the server frees the locks after it
//	process is stopped            the server frees the locks after the lease; guards refuse its transactions after the next claim
//	a statement fails             the locks that it took are released; if that fails, the session ends
//	a claim takes too long        it is canceled after T/4, 3 s or 3/4 of RenewTimeout, and the locks that it took are released: *SlowError; owned shards stay owned
//	a table or row is locked      the statement fails after T/4 or 1 s, and is retried
//	a call's ctx ends             the statement continues; the next call waits for it; a Release without an answer ends the session
//	standby                       ErrStandby, until it is promoted
//	transaction pooler            ErrPooler, permanent, before any lock
//	no table, column or right     *TableError, permanent; a node that detects it loses its shards, within a lease
//	a row is changed by hand      the shard is lost at the next renewal after a look, and claimed in a new term
//	lock table full               ErrLockTableFull; owned shards stay owned
//
// # What it needs
//
//   - Two direct connections for each node, or a pool in session mode, to the primary, in addition to the
//     application's own
//   - One connection for each process, on which it answers queries about its shards (Config.Answer)
//   - Three tables (Schema, Backend.Migrate or Config.CreateTable) and the rights that Schema names
//   - The functions pg_control_system and pg_current_wal_lsn, which every role may call by default
//
// Pin, Drain and Observe open a connection for each call. Guards run on any connection to the database, even
// through a transaction pooler.
//
// # What it does not guarantee
//
//   - Anything that package shards does not guarantee. When the server ends a session, the node learns of
//     it about a millisecond later on a good network. In that time another node may own its shards. Guard
//     writes that must not come late.
//   - Rising terms if a shard's row is deleted: then they start over. The server also cannot detect some
//     restores, such as the restore of a copy from before a promotion. After such a restore, raise all eras
//     before nodes start: UPDATE pglatch_shard SET era = era + 16.
//   - That a term's transactions end with its session: while nobody has claimed the shard again, a guarded
//     transaction of an ended term can still commit. It commits before the next claim.
package postgres
