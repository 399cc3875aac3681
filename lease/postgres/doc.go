// Package postgres keeps leases in PostgreSQL, for processes that share a database
// and cannot, or would rather not, keep a session of it open. And it guards
// transactions, so that what a stale holder still writes there changes nothing.
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
// All that package lease does, and:
//
//   - Nothing is kept in a session. Each operation is one statement and one
//     transaction, through any pooler and in every mode of the protocol; a Sweep is
//     several. Only the server's clock counts, read when the name's row is locked.
//   - Acquires and releases that arrive while four statements of the Store are in
//     flight go out together in the next, and share its commit. One that has to wait for a
//     row for more than a millisecond holds up no other: it is tried again alone, on a
//     connection of its own.
//   - What was acknowledged is on the server's disk, whatever synchronous_commit is by
//     default: off and local become on for the transaction, which with synchronous
//     standbys waits for them too; remote_write and remote_apply stay.
//   - A transaction with a Guard commits before any later lease of the name begins,
//     or not at all.
//   - Many leases are renewed in one statement and one commit by RenewAll.
//
// It is so in all isolation levels. Above read committed, which a role or database
// may have by default, operations that meet end in *lease.BusyError more often.
//
// # Why no stale write commits
//
//	guard     shares the name's advisory lock, locks the row FOR KEY SHARE ── claim current, not expired? ── writes ── commit
//	acquire   takes the name's advisory lock, then the row FOR UPDATE: waits until guarded transactions have ended
//	renewal, release, sweep's marks   lock the row FOR NO KEY UPDATE: they pass a guard
//	sweep that forgets                locks rows FOR UPDATE SKIP LOCKED: passes over them
//
// A guard that has its locks before a later acquire is waited for, and the later holder
// sees what it wrote. A guard that comes after it reads another claim, and raises an
// error in the server, so that the transaction cannot write. That the lease expires
// while a guarded transaction is in flight does no harm: its name is not granted
// before.
//
// The advisory lock is one of the transaction, on a hash of the name: a bigint by hashtextextended. Two names that
// share it, one pair in 2^64, wait for each other's guards and lose nothing else. The row's lock alone is not enough. PostgreSQL
// lets an UPDATE give up the page while it looks for another one, or writes to the TOAST table, and a FOR KEY SHARE
// that is taken meanwhile is dropped when it goes on: seen in versions 14, 15 and 18, by a renewal beside a guard
// (TestARowThatMovesDropsTheLocksOfGuardsThatHaveNoOther).
//
// The row's lock is for what else changes a token, or deletes a row, a statement by hand for example: it
// takes the lock that FOR KEY SHARE conflicts with, but for what is said above, and leaves a version of the row that says so. PostgreSQL
// sees to that for columns of a unique index that a foreign key could refer to (manual,
// section 13.3.2, Row-Level Locks), and (name, token) is one. And above read committed it tells a guard that its
// snapshot is too old. Nobody may drop that index.
//
//   - READ COMMITTED: the guard's statement has a snapshot of its own, waits for an
//     acquire that is under way, and reads the row as that left it.
//   - REPEATABLE READ: the transaction's snapshot can be older than what became of the
//     lease. FOR KEY SHARE fails then if the token has changed since or the row is gone, which is
//     *lease.StaleError, because tokens only rise. A renewal, a release or a
//     sweep's mark since are no change of key: the guard tries FOR SHARE besides, which it
//     gives back at once, and answers *lease.BusyError, as it does for a claim that is
//     newer than the snapshot; the transaction that is tried again gets the
//     truth. So does one whose first statement is the guard.
//   - SERIALIZABLE: the same. That such transactions fail among themselves is *lease.BusyError.
//   - Savepoints: a guard inside of one that is released is as good. A rollback to a savepoint gives
//     back the locks taken after it, so one from before the guard takes the guard back: nothing
//     holds then, and the next guard of the transaction decides anew. Call Guard outside of savepoints.
//   - PREPARE TRANSACTION keeps the locks until COMMIT PREPARED or ROLLBACK PREPARED.
//     Nothing bounds how long that holds up the next lease, so end it.
//   - A transaction that only reads cannot have the lock, and needs no guard: *lease.InvalidError.
//   - Without a transaction the lock is given back at the end of the guard's own statement. So Guard leaves a
//     mark in a setting of its transaction, and reads it in a second statement: ErrNoTransaction if it is gone.
//
// Where a Guard cannot be, in another database, FenceTrigger makes tables refuse tokens
// that are older than the row's.
//
// # What time it is
//
// Each operation goes by the server's clock, and time never goes on from an earlier
// moment than the store has kept: in two sequences, because every transaction sees the
// present of those. Acquires, renewals, releases and sweeps keep the time if that
// was not done for a second; and before an expiry is reported, by Get, List, Renew, Release, Sweep
// or Guard, the time at which it is true is kept, and nobody is at the row who renewed it in
// time and has yet to commit. So:
//
//   - A lease that was reported as expired never comes back, whatever the clock does.
//   - When the clock is set back, time goes on from the kept moment at the clock's pace, and the
//     difference is kept as a shift. Leases last longer by the time from that moment to the first
//     operation after: by a second, where operations are frequent; each time
//     the clock is set back, and never by as much as it is, if somebody asks.
//   - When the clock is set forward, leases end early. If that was by mistake and it is set right,
//     time goes on from where it was: ahead of the clock, which only people see, because
//     clients go by Remaining. When a clock that was set back is set right, leases end early as
//     they do whenever it is set forward.
//   - To bring the store's time back to the clock's, when no lease is needed any more:
//     SELECT setval('pglatch_lease.clock_shift', 0), setval('pglatch_lease.clock_mark', 0).
//
// A refusal of a Guard is kept with the next flush of the server's log of changes, within a second by
// default. What a standby, a read-only transaction or a role without UPDATE is answered is not kept.
//
// # Why tokens rise
//
// A token is era << 40 | n, and so is the floor, in a row of its own. A name's next
// token is the greater of its last one and the floor, plus one. A sweep that deletes a
// name's row raises the floor to it in the same transaction; an acquire that finds no
// row inserts it first, after which no sweep can be under way that the floor it then
// reads does not show.
//
// The era rises when the server may have forgotten some of what it counted: by as much as
// the timeline, when a standby was promoted or a backup recovered; by one, when the
// system identifier is another, the timeline lower or the table a new one, after a dump
// was restored or pg_upgrade. So tokens rise even when a standby was promoted that had missed the
// last ones. A trillion tokens fit an era, and 8,192 eras a number that JavaScript and JSON
// readers like it keep exactly; the terms of package leader have fewer and larger
// eras, and are no such tokens.
//
// # When a standby is promoted
//
// A Store goes on with the new primary by itself if its DSN names both servers and
// target_session_attrs=read-write. With synchronous_standby_names, whatever was acknowledged is on a
// standby too (synchronous_commit on: on its disk; remote_apply: visible there as well), so its promotion
// loses nothing of it, and a primary that is cut off from it acknowledges nothing more. One thing
// gets around that: an operation whose wait for the standby is cancelled is committed on the
// primary all the same. PostgreSQL acknowledges it, if pg_cancel_backend cancelled it; if its context ended,
// its outcome is unknown, and an Acquire with the same IdempotencyKey waits for the standby too before it is
// answered. A Release that is sent again does not: if it is lost the lease is held until it ends.
//
// An asynchronous standby misses the operations of its last moments; pg_stat_replication.replay_lag is how
// many. Of what was acknowledged then,
//
//   - a grant is gone: the name can be granted again while its holder still trusts its lease, also for the request
//     with its idempotency key, and the holder is told by its next renewal, *lease.NotFoundError or *lease.StaleError;
//   - a renewal is gone: the lease ends when it did before it;
//   - a release is gone: the lease is held until it ends or is released again;
//   - the kept time is older: a lease that was reported as expired can come back where the standby's clock is behind.
//
// Tokens rise all the same, because the promotion begins an era: whoever has the name then has a greater token than
// all who had it before, those that the standby never heard of among them. Guard on the new primary, and
// FenceTrigger wherever it is, refuse the earlier ones. A primary that is cut off from an asynchronous standby, or comes
// back beside the promoted one, goes on granting: keep clients from it (a DSN leads to whichever takes writes).
//
// # Who waits at which lock server
//
// A Store is a lease.Messenger: lock servers of one database tell each other over LISTEN and NOTIFY, on the channel
// pglatch_lease, who waits for what, and that it is free. PostgreSQL gives all listeners the messages in the order in which
// their transactions committed (manual, NOTIFY), so all have one line for each name, and a lock that is released at
// one server goes to who came first, wherever that one waits, in milliseconds. lease/leaseserver says how far the order goes, and
// what becomes of it when messages are lost. After a release by a program through a Store of its own the first waiters of
// all servers look by themselves, each second, and any can be the first.
//
// Messages are stored nowhere, and are no part of what is promised: with none, with late ones or with those of whoever else may
// connect to the database, a lease has one holder, and a waiter looks each second.
//
//	connection lost, server restarts,      listens anew after a second or two, five at most after longer outages, on whichever
//	standby is promoted                    server takes writes; the line is then as it was
//	network is silent                      the same, five seconds after messages can be sent again, else a minute
//	a pooler shares server sessions        Listen says so, and it stays with the look: leaseserver logs peers_not_heard. In
//	                                       session mode it works
//	server is a standby                    neither Listen nor Send work; nor does anything else
//	the queue of notifications is full     Send fails, has the server drop what nobody is to get any more, and is tried again; leases are granted
//	                                       and released as ever (the cause is a session that listens and stays in a transaction)
//	a role without rights                  messages need the rights that leases need, and one more connection
//
// Each server has one connection for it beside the pool's. A message is part of no other transaction, and is not waited for until it is on disk.
//
// # What it does not guarantee
//
//   - That a standby which is promoted has the last operations, unless it is synchronous: see above.
//   - The clock of the server, and of the standby that takes its place, can be set. If
//     it jumps forward, leases end early, as package lease says; for the rest see above. A
//     standby that had missed what was kept can be behind by so much.
//   - Two standbys that were promoted independently to one timeline number, copies of a
//     running server's disk, and two restorations of one dump cannot be distinguished: they
//     count the same tokens.
//   - A server with fsync off may forget anything in a crash of the machine.
//   - Writes that are neither guarded nor fenced, and order of what a guarded
//     transaction does elsewhere.
//
// # When something fails
//
//	another is at the row                  waits Config.LockTimeout, then *lease.BusyError
//	guarded writes in flight at Acquire    the same; nothing goes to the server's log
//	... whose holder is stopped            the server ends its session: idle_in_transaction_session_timeout, set by Guard
//	serialization failure, deadlock        *lease.BusyError
//	statement_timeout, disk full           *lease.BusyError
//	too many connections, nobody listens   *lease.BusyError; so is a context that ends before there is a connection
//	server is a standby, or read-only      *lease.BusyError that says so
//	server or connection dies meanwhile    an error of the driver: the outcome is unknown; an IdempotencyKey tells
//	context ends meanwhile                 the same
//	a synchronous standby does not answer  the operation waits until its context ends; the same
//	server restarts                        leases go on, by its clock
//	schema is missing, or an earlier one   lease.ErrNotReady that names Store.Migrate
//	the lease changed since the snapshot   *lease.BusyError by Guard: try the whole transaction again
//	Guard outside of a transaction         ErrNoTransaction; nothing is guarded
//	role has no rights, or cannot connect  lease.ErrNotReady, with the GRANT
//	pool is closed                         lease.ErrClosed
//
// # What it needs
//
// PostgreSQL 14 or later with PL/pgSQL, and a database in UTF-8. The schema
// pglatch_lease, made by Store.Migrate, pglatch or a migration with Schema; on it
// USAGE, on its tables SELECT, INSERT, UPDATE and DELETE, and on its functions EXECUTE, which
// every role has by default, and which a later version of the schema leaves as it was granted. The functions
// pg_control_system and pg_current_wal_lsn, which every role may call by default. And places in the server's lock
// table: one for each guarded transaction, and one for each grant until its commit, which are 1,024 of a Store at
// most; by default the table has 6,400 (manual, max_locks_per_transaction).
//
// A Sweep from time to time, by any number of processes, keeps the table small. It reads
// what is due, by an index that renewals do not touch, and the count of leases is kept; it
// begins no transaction after 10 ms and says so in SweepResult.More. With three million names, of
// which 300,000 have expired, half of the sweeps take up to 30 ms on a busy machine with two cores.
//
// Pages that a long transaction keeps from being cleaned up, of a dump for example, are read
// over and over by operations on a name that changes often: end such transactions.
package postgres
