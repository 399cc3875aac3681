// Package postgres elects a leader with a session advisory lock of PostgreSQL, numbers its terms, and guards
// its transactions.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//
//		"github.com/jackc/pgx/v5"
//		"github.com/jackc/pgx/v5/pgxpool"
//		"github.com/pglatch/pglatch/leader"
//		"github.com/pglatch/pglatch/leader/postgres"
//		"github.com/pglatch/pglatch/namespace"
//	)
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		dsn := os.Getenv("DATABASE_URL")
//		backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(100, 1), CreateTable: true})
//		if err != nil {
//			log.Fatal(err)
//		}
//		elector, err := leader.New(leader.Config{Name: "closer", Backend: backend})
//		if err != nil {
//			log.Fatal(err)
//		}
//		pool, err := pgxpool.New(ctx, dsn)
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer pool.Close()
//		err = elector.Run(ctx, func(ctx context.Context) error { // one process at a time
//			return postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
//				_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = current_date")
//				return err
//			})
//		})
//		log.Print(err)
//	}
//
// # What it guarantees
//
// A Backend holds the election lock on one connection of its own. The server ends that session and frees the
// lock in two cases:
//
//   - The client is gone: at once.
//   - The client was silent for the duration of the lease. The leader stops leading before that
//     moment.
//
// When the server ends a session, the leader learns of it about a millisecond later on a good network. A
// successor can already lead in that time. So for effects outside this database, a backend can guarantee
// nothing, except by Term: the receiver of a request can compare terms.
//
// Inside this database, InTx and Guard guarantee more: a guarded transaction of a term commits before any
// later term begins, or not at all.
//
// # Why no stale write commits
//
// Besides the election lock M, there are two more locks: an incarnation lock R, which is different for each
// leadership, and a lock G, which guards share. All keys are of one election and one database.
//
//	leader           M held ─ R held ─ ... ─ session ends, in any order: M free, R free
//	guard                       G shared (got) ─ R shared (refused) ─ writes ─ commit, G free
//	successor                     M granted ─ R' taken ─ no other R left ─ G alone ─ term + 1
//
// A candidate that is granted M
//
//  1. takes an incarnation that no other session has;
//  2. waits until no other session has an incarnation of this election: a server that ends a session releases
//     its locks in any order, so M can be free before R is;
//  3. takes G exclusively and releases it at once; it ends transactions that hold G for longer than
//     Config.GuardTimeout, and keeps waiting;
//  4. increments the term. Only then does it lead.
//
// A guard first tries to take G in shared mode, and then tries R in shared mode. Both are locks of the
// transaction, and neither try waits. The guard must get G, and must not get R.
//
//   - If the guard found R held, it had G before the candidate's step 2 ended. So step 3 waits until the
//     transaction has committed or rolled back. PostgreSQL releases locks after the changes are visible, so
//     the successor sees them.
//   - If the guard tries after step 2, R is free, and the guard is refused.
//   - While a candidate waits in step 3, no new guard gets G: a try fails if a conflicting request is
//     waiting.
//   - If a process leads again, a guard of its old term tries the old R, which is free. So it is refused.
//   - On another database or another server, R is free, and the guard is refused.
//
// The refusal is a server error: the transaction is aborted and cannot write. A prepared transaction (PREPARE
// TRANSACTION) keeps its locks, and the candidate waits for it, until COMMIT PREPARED or ROLLBACK PREPARED.
//
// A rollback to a savepoint releases the locks that were taken after it, including G. So call Guard outside
// of savepoints. InTx guards with its first statement and again with its last. From then on, G is held until
// the commit. The first guard of InTx also marks the transaction, and the last guard refuses a transaction
// without that mark. InTx then returns a *TxEndedError, because the function that it ran has ended the
// transaction.
//
// Outside of a transaction, G and R are released at the end of the guard's own statement. So Guard also
// leaves a mark, and reads it in a second statement. If the mark is gone, it returns ErrNoTransaction.
//
// # What it does not guarantee
//
//   - Writes that are not guarded, and anything outside of the database: see Term.
//   - The order of effects that a guarded transaction has elsewhere (dblink, another pool).
//   - Knowledge of a commit whose connection broke: it may have taken effect, but then under its
//     term.
//   - Certainty that incarnations differ. They have 32 bits, and each Backend counts them up from a random
//     number. For each pair, the chance that an ended term has the same incarnation as the leader is 2^-32.
//   - Rising terms if their row is deleted: then they start over. Terms do rise across crashes, promotions, and
//     restores of a dump, a copied database or a cold copy of the server's files. After such a restore, as
//     after each start of the server, N continues from the server's clock in milliseconds.
//   - Rising terms in three cases. A copy from before a promotion replaces the promoted server. The clock is
//     set back across a restore. Two standbys that were promoted independently both count terms. In the first
//     two cases, run Backend.NewEra or pglatch migrate --new-era before candidates start.
//
// # Elections that share a class
//
// All companion keys of an election have one classid, a hash of 31 bits. Among 50,000 elections, two share
// a classid with a probability of one half. That does no harm: their locks G differ (63 bits), and step 2
// skips an incarnation whose session holds the election lock of another election.
//
// # How long a takeover takes
//
//   - The leader gives up, or its process or session ends: a few milliseconds.
//   - The leader is stopped or cut off: until the lease T has ended, and a wait step (0.9 s at most).
//   - A guarded transaction is under way: until it has ended, too.
//
// The table shows how long a guarded transaction delays the takeover, counted from the leader's end. Add a
// wait step to each time. G is Config.GuardTimeout (T by default), and C is T/4 or a second, whichever is less.
//
//	the guarded transaction, of a leader that         somebody else leads after     if nobody may end it
//	  ... is idle; killed                             milliseconds                  the same
//	  ... is in a statement, or waits for a row; killed   C                         the same
//	  ... is idle; stopped or cut off                 T, or T after its last        the same
//	                                                  statement, T + G at most
//	  ... is in COPY FROM STDIN; stopped              T + G                         the client continues, or dies
//	  ... has a big result to read; stopped           T + G                         the client continues, or dies
//	  ... waits for a row or sleeps; stopped          T + G                         its statement, and T
//	  ... is in any statement; cut off                T + G                         T, in whole seconds, and C; if the server had
//	                                                                                sent what did not arrive, until TCP gives up
//	  ... continues though its context has ended        G                             its end
//	  ... is prepared                                 COMMIT or ROLLBACK PREPARED   the same
//
// Guard sets the timeouts that the first rows need, only for the transaction. If the server's platform
// has no client_connection_check_interval, C is G. Guard does not set tcp_user_timeout, because that
// would end healthy transactions whose client reads a big result slowly.
//
// "Nobody may end it" means that GuardTimeout is negative, or that the candidate's role has neither the
// privileges of the transaction's role nor those of pg_signal_backend. Then, and for a prepared transaction,
// the log and PendingError name the session or gid, its role, its start, and the missing right. Only
// transactions of earlier terms are ended: the candidate holds M and R, so no other term has any.
//
// # When something fails
//
//	server ends the session      Lost at once; the next attempt opens a new session
//	server restarts              the same; terms rise, whatever synchronous_commit is by default
//	server's clock is set ahead  if by about the lease or more, the server ends the session, so Lost at once
//	network is cut               Renew fails when its ctx ends; ErrLost before the lease can end
//	... and comes back           a candidate ends its own old session, which the server still has
//	process is stopped           the server frees the lock after the lease; guards refuse its transactions
//	standby is promoted          ErrStandby until then; the era rises, so that terms do
//	transaction pooler           ErrPooler, before any lock
//	table is missing             an error that says how to create it; nothing stays locked
//	... or was changed later     the leader reports it within its lease, and continues to lead; see Backend.Audit
//	table's row is locked        an error that names the lock's owner, when the attempt's time is over
//
// # What it needs
//
//   - A direct connection, or a pool in session mode, to the primary, in addition to the application's own
//     connections
//   - SELECT, INSERT and UPDATE on the table
//   - The functions pg_control_system and pg_current_wal_lsn, which every role may call by default
//
// If a hosted PostgreSQL does not allow the table or these functions, set Config.NoTerms: elections and
// guards then need no table. Guards run on any connection to the database, even through a transaction
// pooler.
package postgres
