// Package postgres keeps the claims of package once in one table of PostgreSQL. It can also run
// a tick in a transaction of the caller, which then commits the tick's run and its work
// together.
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
// Use DoTx for work in the database of the table. The work and the tick are committed together, so
// a crash can neither repeat nor lose the work, and no lease can expire. Use a Runner on a Store
// for all other work, and for work that lasts so long that its transaction would hold up VACUUM.
//
// # What it guarantees
//
// The guarantees of package once, and:
//
//   - No session state: each operation is a short transaction, through any pooler and in every mode
//     of the protocol. The same is true of DoTx, except that its transaction is the caller's.
//   - Only the server's clock counts.
//   - Every acknowledged change is on the server's disk, whatever the default of
//     synchronous_commit, except for DoTx, whose commit is the caller's.
//   - Claims of one tick exclude each other by a transaction-level advisory lock, and wait for each
//     other for at most a tenth of a second. While a transaction of DoTx is open, others see the
//     tick as Running, by an unknown node.
//   - DoTx guarantees this in every isolation level. In REPEATABLE READ and SERIALIZABLE, if the
//     snapshot is older than another node's run, the error is once.ErrBusy: PostgreSQL refuses to
//     change a row that the snapshot does not show (manual, section 13.2.2).
//
// # What it does not guarantee
//
//   - Ticks that a promoted standby had missed may be run again. The standby has also missed
//     their work in this database. Synchronous standbys prevent that.
//   - The server's clock can be set. If it is set forward by days, the ends of ticks are forgotten
//     early.
//   - A role can change the table by hand.
//
// # What it needs
//
// It needs PostgreSQL 14 or later, and the table of Schema, with SELECT, INSERT, UPDATE and DELETE
// on it. Config.CreateTable, Store.Migrate or your own migration creates the table. A row is a
// tick. Each run of a Runner removes up to a hundred rows older than eight days. Programs that use
// only DoTx must call Store.Sweep from time to time.
package postgres
