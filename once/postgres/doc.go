// Package postgres keeps the claims of package once in one table of PostgreSQL, and runs ticks in a transaction
// of the caller's: that a tick was run and what it did are then committed together.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		_, err := postgres.DoTx(ctx, tx, "close-the-day", tick, func(ctx context.Context) error {
//			_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = $1", tick)
//			return err
//		})
//		return err
//	})
//
// # Which to use
//
// DoTx, for work that is done in the database of the table: there is no moment in which the work is done and
// the tick is not, so a crash can neither repeat it nor lose it, and there is no lease that could run out. A Runner
// on a Store, for all other work, and for work that lasts so long that its transaction would hold up VACUUM.
//
// # What it guarantees
//
// What package once does, and:
//
//   - Nothing is kept in a session: each operation is a short transaction, through any pooler and in every mode of
//     the protocol. DoTx is as well; its transaction is the caller's.
//   - Only the server's clock counts.
//   - What was acknowledged is on the server's disk, whatever synchronous_commit is by default, but for DoTx, whose
//     commit is the caller's.
//   - Claims of one tick exclude each other by an advisory lock of their transaction, and wait for each other for a
//     tenth of a second: while a transaction of DoTx is open, the tick is Running to others, by an unknown node.
//   - DoTx does so in every isolation level. In repeatable read and serializable, a snapshot that is older than
//     another's run ends in once.ErrBusy: PostgreSQL refuses to change a row that the snapshot does not show
//     (manual, section 13.2.2).
//
// # What it does not guarantee
//
//   - Ticks that a promoted standby had missed may be run again, as what they did in this database was missed with
//     them. Synchronous standbys prevent it.
//   - The server's clock can be set: forward by days, and the ends of ticks are forgotten early.
//   - A role that changes the table by hand.
//
// # What it needs
//
// PostgreSQL 14 or later, and the table of Schema, made by Config.CreateTable, Store.Migrate or a migration of yours; on it
// SELECT, INSERT, UPDATE and DELETE. A row is a tick; those older than eight days are removed, up to a hundred by each
// run of a Runner. Programs that use DoTx only call Store.Sweep from time to time.
package postgres
