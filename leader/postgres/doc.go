// Package postgres elects a leader with a session advisory lock of PostgreSQL,
// numbers its terms, and guards its transactions.
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
// A Backend holds the election lock on one connection of its own. The server ends
// that session, and frees the lock, when the client is gone, at once, or when it
// was silent for the duration of the lease. The leader stops leading before
// that. Between the server's end of a session and the leader's hearing of it,
// about a millisecond on a good network, a successor can already lead. Nothing can
// be promised for what a leader does outside of this database in that time, but
// for Term, which whoever receives a request can compare.
//
// Inside this database, InTx and Guard promise more: a guarded transaction of a
// term commits before any later term begins, or not at all.
//
// # Why no stale write commits
//
// Beside the election lock M there is an incarnation lock R, another for each
// leadership, and a lock G of the guards. All keys are of one election and one database.
//
//	leader           M held ─ R held ─ ... ─ session ends, in any order: M free, R free
//	guard                       G shared (got) ─ R shared (refused) ─ writes ─ commit, G free
//	successor                     M granted ─ R' taken ─ no other R left ─ G alone ─ term + 1
//
// A candidate that is granted M
//
//  1. takes an incarnation that nobody has;
//  2. waits until no other session has an incarnation of this election: a server that
//     ends a session gives its locks back in any order, so M can be free before R is;
//  3. takes G exclusively, and gives it back at once; it ends transactions that keep it
//     from that for longer than Config.GuardTimeout, and goes on waiting;
//  4. counts the term. Only then does it lead.
//
// A guard takes G shared first and tries R shared second, both for the
// transaction and without waiting. It must get G and must not get R.
//
//   - If it saw R held, it had G before the candidate's step 2 ended, so step 3
//     waits until it has committed or is rolled back. PostgreSQL releases locks after the
//     changes are visible, so the successor sees them.
//   - If it looks after step 2, R is free, and it is refused.
//   - While a candidate waits in step 3, no new guard gets G: a try fails when
//     somebody waits who conflicts with it.
//   - A guard of an old term in a process that leads again looks for the old R, which
//     is free, and is refused.
//   - On another database or another server R is free, and it is refused.
//
// The refusal is an error of the server's: the transaction is aborted and cannot
// write. A lock of a transaction that was prepared (PREPARE TRANSACTION) is kept, and
// waited for, until COMMIT PREPARED.
//
// A rollback to a savepoint gives back the locks that were taken after it, G
// too. So a bare Guard is called outside of savepoints, and InTx guards as the first statement and again as
// the last one: from there G is held to the commit. The first guard of InTx also marks the transaction, and the
// last refuses one without that mark: InTx returns a *TxEndedError if the function that it ran has ended its transaction.
//
// Outside of a transaction G and R are given back at the end of the guard's own statement. So a bare
// Guard leaves a mark too, and reads it in a second statement: ErrNoTransaction if it is gone.
//
// # What it does not guarantee
//
//   - Writes that are not guarded, and anything outside of the database: see Term.
//   - Order of what a guarded transaction does elsewhere (dblink, another pool).
//   - A commit whose connection breaks may have taken effect, but then under its term.
//   - Incarnations have 32 bits and are counted up from a random number in each Backend:
//     the chance that one of an ended term is that of the leader is 2^-32 for each pair.
//   - Terms begin again if their row is deleted. They rise across crashes, promotions and
//     restores of a dump, a copied database or a cold copy of the server's files (then N goes on at
//     the server's clock in milliseconds, as it does after each start of the server). They
//     can repeat if a copy of before a promotion takes the place of the promoted server, if the
//     clock goes back over a restore, or if two standbys that were promoted independently
//     count at the same time: for the first two, Backend.NewEra or pglatch migrate
//     --new-era, before candidates start.
//
// # Elections that share a class
//
// All companion keys of an election have one classid, a hash of 31 bits, and by chance
// two of 50,000 elections share one with a probability of a half. That costs nothing: their
// G differ (63 bits), and step 2 passes over an incarnation whose session holds the election
// lock of another election. Earlier versions had one G for each class. A guard of theirs is
// waited for too, and a candidate of theirs waits for our guards in step 2, so that
// versions can be mixed during a deploy.
//
// # How long a takeover takes
//
// If the leader gives up, or its process or session ends, a few milliseconds. If it
// is stopped or cut off, until the lease T has ended, and a wait step (0.9 s at most).
// If a guarded transaction is in flight, until it ends as well. What it is at decides how
// long that takes, counted from the leader's end, when G is Config.GuardTimeout (T by
// default) and C is T/4 or a second, whichever is less:
//
//	the guarded transaction, of a leader that         somebody else leads after     if nobody may end it
//	  ... is idle; killed                             milliseconds                  the same
//	  ... is in a statement, or waits for a row; killed   C                         the same
//	  ... is idle; stopped or cut off                 T, or T after its last        the same
//	                                                  statement, T + G at most
//	  ... is in COPY FROM STDIN; stopped              T + G                         the client goes on, or dies
//	  ... has a big result to read; stopped           T + G                         the client goes on, or dies
//	  ... waits for a row or sleeps; stopped          T + G                         its statement, and T
//	  ... is in any statement; cut off                T + G                         T, in whole seconds, and C; if the server had
//	                                                                                sent what did not arrive, until TCP gives up
//	  ... goes on though its context has ended        G                             its end
//	  ... is prepared                                 COMMIT or ROLLBACK PREPARED   the same
//
// plus a wait step. Guard sets what the first rows need for the transaction alone; where the
// server's platform has no client_connection_check_interval, C is G. It does not set
// tcp_user_timeout, which would end healthy transactions whose client reads a big result
// slowly. "Nobody may end it": GuardTimeout is negative, or the candidate's role has
// neither the privileges of the transaction's role nor those of pg_signal_backend. Then,
// and for a prepared transaction, the log and PendingError say which session or gid it
// is, whose, since when, and what is missing. Only transactions of earlier terms are
// ended: the candidate holds M and R, so that no other term has any.
//
// # When something fails
//
//	server ends the session      Lost at once; a new session by the next attempt
//	server restarts              the same; terms rise, whatever synchronous_commit is by default
//	server's clock is set ahead  by about the lease or more: it ends the session, which is Lost at once
//	network is cut               Renew fails when its ctx ends; ErrLost before the lease can end
//	... and comes back           a candidate ends its own old session, which the server still has
//	process is stopped           the server frees the lock after the lease; guards refuse its transactions
//	standby is promoted          ErrStandby until then; the era rises, so that terms do
//	transaction pooler           ErrPooler, before any lock
//	table is missing             an error that says how to make it; nothing stays locked
//	... or was changed later     the leader reports it within its lease, and leads on; see Backend.Audit
//	table's row is locked        an error that says so and whose it is, when the attempt's time is over
//
// # What it needs
//
// A direct connection, or a pool in session mode, to the primary, beside the
// application's own; SELECT, INSERT and UPDATE on the table; the functions
// pg_control_system and pg_current_wal_lsn, which every role may call by default.
// Where a service takes these away, Config.NoTerms does without: elections and
// guards need no table. Guards themselves run on any connection to the database,
// through a transaction pooler too.
package postgres
