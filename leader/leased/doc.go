// Package leased elects a leader with a fenced lease, wherever package lease keeps
// them: in PostgreSQL, behind a lock server, in memory for tests.
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
// On PostgreSQL, leader/postgres is the better choice where a connection can be kept
// open: it hears of a loss at once, and guards transactions. This package needs no
// session, and so goes through any pooler; a program elsewhere needs only HTTP.
// On lease/etcd it is an election that survives the loss of any machine; followers watch, and do not poll.
// A file of lease/sqlite has one process, which serves it to the others (pglatch serve locks).
//
// # What it guarantees
//
//   - Whoever leads has the one lease of Config.Name. By its store's clock it lasts for at least
//     the LeaseDuration from the start of the last good renewal. A store that grants less
//     is refused.
//   - A leadership is one lease: Renew matches its holder, id and token, so
//     none goes on in a later lease, of the same identity either. Two processes of one
//     identity exclude each other.
//   - Term is the lease's fencing token: Term.Uint64 is the number that guards of
//     lease/postgres, and everything else that is written to, compare.
//   - The end of a ctx ends no request for the lease half way. What an attempt may have got
//     although its answer was late or lost is given up by Release, or led by the next attempt:
//     its idempotency key finds it. If neither gets through, it ends after the LeaseDuration.
//
// # What it does not guarantee
//
//   - That a loss is heard of at once: a lease that somebody else ended or took is noticed
//     by the next renewal.
//   - That terms have no gaps. An attempt or a wait that is given up after it
//     got the lease spends a token.
//   - That a successor knows how its predecessor ended: leased leaders wait for their
//     SettleDelay at each start.
//   - That a request leaves nothing held which had no answer for half of Release's time, and
//     reaches the store after the one that asks what came of it: then the lock is kept until
//     the LeaseDuration is over.
//
// # Waiting
//
// On a WaitingStore followers stand in its line, for a PollInterval at a time, and a
// release hands the lease to the first. On others they look, each PollInterval or when
// the lease ends, whichever comes first; all that find it free then try.
//
// # When something fails
//
//	the store says that the lease is over      ErrLost at once: stale, expired or unknown
//	the store is busy, closed or unreachable   Renew fails, and is tried again until the deadline
//	the answer to an attempt is lost           the attempt fails; Release gives up what it got
//	... and Release fails too                  the next attempt leads with what the first one got
//	the leader is cut off                      its context ends; others lead when the lease has expired
//	the store forgot the name                  ErrLost; tokens go on rising, if it is not a new store
//	the store was set back, from a backup      see lease/postgres, lease/sqlite and lease/etcd on what tokens do then
package leased
