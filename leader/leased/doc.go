// Package leased elects a leader with a fenced lease in any store of package lease: in PostgreSQL, behind a
// lock server, or in memory for tests.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//
//		"github.com/pglatch/pglatch/leader"
//		"github.com/pglatch/pglatch/leader/leased"
//		"github.com/pglatch/pglatch/lease/leasehttp"
//	)
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer client.Close()
//		backend, err := leased.New(client, leased.Config{Name: "scheduler"})
//		if err != nil {
//			log.Fatal(err)
//		}
//		elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
//		if err != nil {
//			log.Fatal(err)
//		}
//		err = elector.Run(ctx, func(ctx context.Context) error { // one process at a time
//			return schedule(ctx, leader.TermOfContext(ctx).Uint64()) // the fencing token
//		})
//		log.Print(err)
//	}
//
// On PostgreSQL, leader/postgres is the better choice if a connection can be kept open: it detects a loss at
// once, and guards transactions. This package needs no session, so it works through any pooler. A program
// without PostgreSQL needs only HTTP. On lease/etcd, an election survives the loss of any machine, and
// followers watch instead of polling. A file of lease/sqlite belongs to one process, which serves it to the
// others (pglatch serve locks).
//
// # What it guarantees
//
//   - The leader has the only lease on Config.Name. By its store's clock, the lease lasts for at least
//     LeaseDuration from the start of the last successful renewal. A store that grants less is refused.
//   - A leadership is one lease. Renew matches the lease's holder, id and token, so no leadership
//     continues in a later lease, not even in one of the same identity. Two processes with the same
//     identity exclude each other.
//   - Term is the lease's fencing token. Term.Uint64 is the number that guards of lease/postgres, and all
//     other receivers of writes, compare.
//   - The end of a ctx never interrupts a request for the lease. An attempt may have got a lease although its
//     answer was late or lost. Then Release gives that lease up, or the next attempt finds it by its
//     idempotency key and leads with it. If neither reaches the store, the lease ends after LeaseDuration.
//
// # What it does not guarantee
//
//   - Immediate detection of a loss: if somebody else ended or took the lease, the next renewal
//     detects that.
//   - Terms without gaps. An attempt or a wait that is canceled after it got the lease uses up a token.
//   - Knowledge of how the predecessor ended: leaders with this backend wait for their SettleDelay
//     at each start.
//   - That every lease is released. For the answer to an outstanding request, Release waits
//     until halfway to its ctx's deadline. Then it asks the store for the outcome. If the outstanding request reaches the store after that, it
//     acquires a lease that nobody uses. That lease lasts for LeaseDuration.
//
// # Waiting
//
// On a WaitingStore, followers wait in its queue, for a PollInterval at a time, and a release hands the
// lease to the first of them. On other stores they check every PollInterval, or when the lease ends,
// whichever comes first. All followers that find the lease free then try to get it.
//
// # When something fails
//
//	the store says that the lease is over      ErrLost at once: stale, expired or unknown
//	the store is busy, closed or unreachable   Renew fails, and is retried until the deadline
//	the answer to an attempt is lost           the attempt fails; Release gives up the lease that it got
//	... and Release fails too                  the next attempt leads with the lease that the first one got
//	the leader is cut off                      its context ends; others lead when the lease has expired
//	the store forgot the name                  ErrLost; tokens keep rising, if it is not a new store
//	the store was restored from a backup       for the tokens see lease/postgres, lease/sqlite and lease/etcd
package leased
