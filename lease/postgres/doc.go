// Package postgres keeps leases in PostgreSQL, for processes that share a database but cannot, or
// should not, keep a session open. It also guards transactions, so that late writes of a stale
// holder change nothing in that database.
//
//	package main
//
//	import (
//		"context"
//		"errors"
//		"log"
//		"os"
//		"time"
//
//		"github.com/jackc/pgx/v5"
//		"github.com/jackc/pgx/v5/pgxpool"
//		"github.com/pglatch/pglatch/lease"
//		"github.com/pglatch/pglatch/lease/postgres"
//	)
//
//	func main() {
//		ctx := context.Background()
//		pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer pool.Close()
//		store, err := postgres.New(postgres.Config{Pool: pool})
//		if err != nil {
//			log.Fatal(err)
//		}
//		if err := store.Migrate(ctx); err != nil {
//			log.Fatal(err)
//		}
//		host, _ := os.Hostname()
//		l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "close-the-day", Holder: host, TTL: time.Minute})
//		if errors.Is(err, lease.ErrHeld) {
//			return // somebody else does it
//		}
//		if err != nil {
//			log.Fatal(err)
//		}
//		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			if err := postgres.Guard(ctx, tx, l.Claim); err != nil {
//				return err
//			}
//			_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = current_date")
//			return err
//		})
//		if err != nil {
//			log.Print(err)
//		}
//		if err := store.Release(ctx, l.Claim); err != nil {
//			log.Print(err)
//		}
//	}
//
// # What it guarantees
//
// All guarantees of package lease, and:
//
//   - No session state: each operation is one statement and one transaction, through any pooler and
//     in every mode of the protocol. (A Sweep is several.) Only the server's clock counts; it is
//     read when the name's row is locked.
//   - While two statements of the Store are in flight, further acquires and releases are
//     collected. They go out together in the next statement, and share its commit. If one of these
//     operations has to wait for a row for more than a millisecond, it does not delay the others:
//     it is tried again alone, on a connection of its own.
//   - Every acknowledged change is on the server's disk, whatever the default of
//     synchronous_commit is. If it is off or local, the transaction sets it to on, and so
//     also waits for synchronous standbys, if there are any. remote_write and remote_apply
//     stay unchanged.
//   - A transaction with a Guard commits before any later lease of the name begins, or not at all.
//   - RenewAll renews many leases in one statement and one commit.
//
// This holds in all isolation levels. Above READ COMMITTED, which a role or database may have as
// its default, concurrent operations on a name end in *lease.BusyError more often.
//
// # Why no stale write commits
//
//	guard     shares the name's advisory lock, locks the row FOR KEY SHARE ── claim current, not expired? ── writes ── commit
//	acquire   takes the name's advisory lock, then the row FOR UPDATE: waits until guarded transactions have ended
//	renewal, release, sweep's marks   lock the row FOR NO KEY UPDATE: they pass a guard
//	sweep that forgets                locks rows FOR UPDATE SKIP LOCKED: passes over them
//
// If a guard has its locks before a later acquire, the acquire waits for the guarded transaction,
// and the later holder sees what that transaction wrote. A guard that comes after the acquire
// reads a different claim and raises an error in the server, so that the transaction cannot write.
// If the lease expires while a guarded transaction is in flight, its name is not granted until
// that transaction has ended.
//
// The advisory lock is a transaction-level lock on a hash of the name: a bigint from
// hashtextextended. If two names share a hash (one pair in 2^64), they wait for each other's
// guards; there is no other effect. The row lock alone is not enough. In PostgreSQL, an UPDATE can
// release the page while it looks for another page, or while it writes to the TOAST table. When the
// UPDATE continues, it drops a FOR KEY SHARE lock that was taken in the meantime. This was seen in
// versions 14, 15 and 18, with a renewal beside a guard
// (TestARowThatMovesDropsTheLocksOfGuardsThatHaveNoOther).
//
// The row lock protects against any other change of a token or deletion of a row, for example by a
// manual statement. Such a statement takes a lock that conflicts with FOR KEY SHARE, except in the
// case above, and leaves a row version that shows the change. PostgreSQL does this for columns of a
// unique index that a foreign key could refer to (manual, section 13.3.2, Row-Level Locks), and
// (name, token) has such an index. Never drop that index. Above READ COMMITTED, the row lock also
// shows a guard that its snapshot is too old.
//
//   - READ COMMITTED: the guard's statement has its own snapshot. It waits for an acquire in
//     progress, and then reads the row as the acquire left it.
//   - REPEATABLE READ: the transaction's snapshot can be older than the lease's current state. If
//     the token has changed since then, or the row is gone, FOR KEY SHARE fails. The guard then
//     returns *lease.StaleError, because tokens only rise. A renewal, a release or a sweep's mark
//     does not change the key. To detect these, the guard also tries FOR SHARE, which it releases
//     at once. If that fails, the guard returns *lease.BusyError. It returns the same error for a
//     claim that is newer than the snapshot. The transaction sees the true state if it is tried
//     again, or if the guard is its first statement.
//   - SERIALIZABLE: the same. Serialization failures among such transactions are reported as
//     *lease.BusyError.
//   - Savepoints: a guard inside a released savepoint counts like a guard outside. A rollback to
//     a savepoint releases the locks that were taken after it. If the savepoint is older than the
//     guard, the guard's locks are then gone and nothing is guarded; the next guard of the
//     transaction checks everything again. Call Guard outside of savepoints, or use InTx, which
//     guards again as the last statement.
//   - PREPARE TRANSACTION keeps the locks until COMMIT PREPARED or ROLLBACK PREPARED. There
//     is no limit to how long that delays the next lease, so end such a transaction.
//   - A read-only transaction cannot take the lock, and needs no guard. Guard returns ErrReadOnly.
//   - Without a transaction, the lock is released at the end of the guard's own statement. So
//     Guard leaves a mark in a setting of its transaction, and reads it in a second statement. If
//     the mark is gone, Guard returns ErrNoTransaction.
//
// Where Guard cannot run, for example in another database, FenceTrigger makes tables refuse tokens
// that are older than the row's.
//
// # What time it is
//
// Each operation uses the server's clock. The store saves the time in two sequences, because every
// transaction sees their current values. The store's time never continues from an earlier moment
// than the saved one. An acquire, renewal, release or sweep saves the time if no operation has
// saved it for a second. Get, List, Renew, Release, Sweep and Guard do two things before they
// report an expiry. They save the time at which they found the lease expired. They also make sure
// that no transaction in progress has renewed the row in time. So:
//
//   - A lease that was reported as expired never becomes valid again, whatever the clock does.
//   - If the clock is set back, the store's time continues from the saved moment at the clock's
//     pace, and the difference is saved as a shift. Leases last longer by the time between the
//     saved moment and the first operation after it, which is a second if operations are
//     frequent. This happens each time the clock is set back. As long as there are operations,
//     the extra time is less than the step of the clock.
//   - If the clock is set forward, leases end early. If that was a mistake and the clock is
//     corrected, the store's time continues from where it was, ahead of the clock. Only people see
//     that, because clients use Remaining. When a clock that was set back is corrected, leases end
//     early, as they do whenever the clock is set forward.
//   - When no lease is needed any more, you can bring the store's time back to the clock's:
//     SELECT setval('pglatch_lease.clock_shift', 0), setval('pglatch_lease.clock_mark', 0).
//
// When a Guard refuses a claim, the time is saved with the next flush of the
// server's WAL, within a second by default. The time is not saved for answers of a
// standby, in a read-only transaction, or for a role without UPDATE.
//
// # Why tokens rise
//
// A token is era << 40 | n. The floor is a number of the same form, and has its own row. A name's
// next token is the greater of its last token and the floor, plus one. When a sweep deletes a
// name's row, it raises the floor to the row's token in the same transaction. An acquire that finds
// no row first inserts one, and then reads the floor. So it sees the floor of every sweep that
// deleted an earlier row of the name.
//
// The era rises when the server may have forgotten some tokens:
//
//   - by as much as the timeline rises, if a standby was promoted or a backup recovered
//   - by one, if the system identifier is different, the timeline is lower or the table is a new
//     one, as after pg_upgrade or the restore of a dump
//
// So tokens rise even if the promoted standby had missed the last ones. An era has room for a
// trillion tokens. JavaScript, and JSON parsers with the same number type, represent the tokens of
// 8,192 eras exactly. The terms of package leader have fewer and larger eras, and are not
// comparable with these tokens.
//
// # When a standby is promoted
//
// A Store continues with the new primary automatically if its DSN names both servers and
// target_session_attrs=read-write. With synchronous_standby_names, every acknowledged change is on
// a standby too (synchronous_commit on: on its disk; remote_apply: visible there as well). So no
// acknowledged change is lost when the standby is promoted, and a primary that is cut off from it
// acknowledges nothing more. There is one exception: if an operation's wait for the standby is
// canceled, the operation is still committed on the primary. If pg_cancel_backend canceled the
// wait, PostgreSQL acknowledges the operation. If the operation's context ended, the outcome is
// unknown. An Acquire that is sent again with the same IdempotencyKey is answered only after it
// has waited for the standby too. A Release that is sent again does not wait: if it is lost in the
// promotion, the lease is held until it ends.
//
// An asynchronous standby lacks the primary's last operations; pg_stat_replication.replay_lag shows
// how far it is behind. After its promotion, acknowledged operations can be lost:
//
//   - A lost grant: the name can be granted again while its holder still trusts its lease, even to
//     a request with the holder's idempotency key. The holder's next renewal returns
//     *lease.NotFoundError or *lease.StaleError.
//   - A lost renewal: the lease ends when it would have ended without that renewal.
//   - A lost release: the lease is held until it ends or is released again.
//   - An older saved time: a lease that was reported as expired can become valid again if the
//     standby's clock is behind.
//
// Tokens still rise, because the promotion begins a new era. The next holder of a name has a
// greater token than all earlier holders, including those that the standby never knew of. Guard
// on the new primary, and FenceTrigger in any database, refuse the earlier ones. A primary that
// is cut off from an asynchronous standby, or that comes back while the promoted one runs,
// continues to grant leases. Keep clients away from it: a DSN with several hosts connects to
// any server that accepts writes.
//
// # Changes that one lock server tells the others
//
// A Store is a lease.Messenger. If several lock servers share one database, one of them is active and has all
// queues. A server that cannot reach it, or is not part of the election, answers on its own. It then notifies the
// others of the names that it changed or waits for, with NOTIFY on the channel pglatch_lease. See
// lease/leaseserver. A program that releases through a Store of its own sends no message. Waiters then find the
// free lock when they poll, once a second.
//
// Messages are not stored, and no guarantee depends on them.
//
//	connection lost, server restarts,      listens again after a second or two, five at most after longer outages, on whichever
//	standby is promoted                    server takes writes
//	network is silent                      the same, after ten seconds at most
//	a pooler shares server sessions        Listen reports it, and waiters only poll: leaseserver logs changes_not_heard. In
//	                                       session mode it works
//	server is a standby                    neither Listen nor Send works; nor does anything else
//	the queue of notifications is full     Send fails, makes the server drop delivered notifications, and is tried again; leases are granted and released as usual (the cause is a session that listens and stays in a transaction)
//	a role without rights                  messages need the rights that leases need, and one more connection
//
// Each server has one connection for messages, in addition to the pool's connections. A message is
// a separate transaction, and the server does not wait until it is on disk.
//
// # What it does not guarantee
//
//   - That a promoted standby has the last operations, unless it is synchronous: see above.
//   - That nobody sets the clock of the server, or of the standby that replaces it. If the clock
//     jumps forward, leases end early, as package lease says; for the other cases see above. If a
//     standby had missed the last saved time, the store's time can be behind by that much.
//   - Different tokens in copies of one database: two standbys that were promoted independently
//     to the same timeline number, copies of a running server's disk, or two restores of one
//     dump. The store cannot distinguish these copies, and they grant the same tokens.
//   - Anything on a server with fsync off: it may forget everything when its machine crashes.
//   - Anything about writes that are neither guarded nor fenced, or about the
//     order of effects that a guarded transaction has elsewhere.
//
// # When something fails
//
//	another transaction locks the row      waits Config.LockTimeout, then *lease.BusyError
//	guarded writes in flight at Acquire    the same; nothing goes to the server's log
//	... whose holder is stopped            the server ends its session: idle_in_transaction_session_timeout and others, set by Guard
//	serialization failure, deadlock        *lease.BusyError
//	statement_timeout, disk full           *lease.BusyError
//	too many connections, or refused ones  *lease.BusyError; also if the context ends before there is a connection
//	server is a standby, or read-only      *lease.BusyError that says so
//	server or connection dies meanwhile    an error of the driver: the outcome is unknown; send again with the IdempotencyKey
//	context ends meanwhile                 the same
//	a synchronous standby does not answer  the operation waits until its context ends; the same
//	server restarts                        leases continue, by its clock
//	schema is missing, or an earlier one   lease.ErrNotReady that names Store.Migrate
//	the lease changed since the snapshot   *lease.BusyError by Guard: try the whole transaction again
//	Guard outside of a transaction         ErrNoTransaction; nothing is guarded
//	role has no rights, or cannot connect  lease.ErrNotReady, with the GRANT
//	pool is closed                         lease.ErrClosed
//
// # What it needs
//
//   - PostgreSQL 14 or later with PL/pgSQL, and a database in UTF-8.
//   - The schema pglatch_lease, made by Store.Migrate, pglatch or a migration with Schema.
//   - USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables, and EXECUTE on its
//     functions. Every role has EXECUTE by default. A migration of the schema keeps the granted
//     rights.
//   - The functions pg_control_system and pg_current_wal_lsn, which every role may call by default.
//   - Room in the server's lock table: one lock for each guarded transaction, and one for each
//     grant until its commit, of which a Store has at most 1,024. By default the table has 6,400
//     (manual, max_locks_per_transaction).
//
// A Sweep from time to time, by any number of processes, keeps the table small. It finds due names
// by an index that renewals do not touch, and reads the stored count of leases. After 10 ms it
// begins no further transaction, and sets SweepResult.More. With three million names, of which
// 300,000 have expired, half of the sweeps take up to 30 ms on a busy machine with two cores.
//
// A long transaction, such as a dump, prevents the cleanup of pages. Operations on a name that
// changes often then read such pages again and again: end such transactions.
package postgres
