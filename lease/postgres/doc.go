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
//	guard     locks the row FOR KEY SHARE ── claim current, not expired? ── writes ── commit
//	renewal, release   lock the row FOR NO KEY UPDATE: they pass a guard
//	acquire            locks the row FOR UPDATE: waits until guarded transactions have ended
//	sweep              locks rows FOR UPDATE SKIP LOCKED: passes over them
//
// A guard that has the row before a later acquire is waited for, and the later holder
// sees what it wrote. A guard that comes after it reads another claim, and raises an
// error in the server, so that the transaction cannot write. That the lease expires
// while a guarded transaction is in flight does no harm: its name is not granted
// before.
//
// A rollback to a savepoint gives back the locks taken after it, so Guard is called
// outside of savepoints. Where a Guard cannot be, in another database, FenceTrigger
// makes tables refuse tokens that are older than the row's.
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
// # What it does not guarantee
//
//   - Leases that a promoted standby had missed are lost with the other transactions
//     that it missed, and can be granted again while their holders still trust them: with
//     a greater token, which Guard and FenceTrigger tell apart. Synchronous standbys
//     prevent it.
//   - The clock of the server, and of the standby that takes its place, can be set. If
//     it jumps forward, leases end early, as package lease says.
//   - Two standbys that were promoted independently to one timeline number, copies of a
//     running server's disk, and two restorations of one dump cannot be told apart: they
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
//	schema is missing                      lease.ErrNotReady that names Store.Migrate
//	role has no rights, or cannot connect  lease.ErrNotReady, with the GRANT
//	pool is closed                         lease.ErrClosed
//
// # What it needs
//
// PostgreSQL 14 or later with PL/pgSQL, and a database in UTF-8. The schema
// pglatch_lease, made by Store.Migrate, pglatch or a migration with Schema; on it
// USAGE, and on its tables SELECT, INSERT, UPDATE and DELETE. The functions
// pg_control_system and pg_current_wal_lsn, which every role may call by default.
//
// A Sweep from time to time, by any number of processes, keeps the table small. It
// reads all of it, because an index on what every operation changes would cost each of
// them more.
package postgres
