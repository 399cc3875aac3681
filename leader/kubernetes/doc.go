// Package kubernetes elects a leader with a Lease object of the Kubernetes API. It is
// a module of its own, so that nothing else of pglatch depends on client-go:
//
//	go get github.com/pglatch/pglatch/leader/kubernetes
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//		"syscall"
//		"time"
//
//		"github.com/pglatch/pglatch/leader"
//		"github.com/pglatch/pglatch/leader/kubernetes"
//	)
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//		defer stop()
//		backend, err := kubernetes.NewFromEnv("my-app")
//		if err != nil {
//			log.Fatal(err)
//		}
//		config := leader.NewConfig(os.Getenv("POD_NAME"))
//		config.Name, config.Backend = "my-app", backend
//		elector, err := leader.New(config)
//		if err != nil {
//			log.Fatal(err)
//		}
//		log.Print(elector.Run(ctx, func(ctx context.Context) error { // in one pod at a time
//			for ctx.Err() == nil {
//				log.Print("working in term ", elector.Term())
//				time.Sleep(time.Second)
//			}
//			return nil
//		}))
//	}
//
// Module adapters/clientgolock is the opposite: the elector of client-go, and managers of
// controller-runtime, on our leases, without a Lease object.
//
// examples/kubernetes has the whole program, its image, its rights, its Deployment, and a
// Service that follows the leader.
//
// # The record
//
//	holderIdentity        who leads: identity_suffix; empty = nobody
//	leaseDurationSeconds  how long, without a renewal
//	renewTime             the last renewal, by the leader's clock
//	acquireTime           the begin of the term, by the leader's clock
//	leaseTransitions      the term
//
// The suffix is random and new in each Backend: two pods of one name, or one that
// was started again, are never taken for each other.
//
// A leader writes the record again and again. A candidate takes it when it is empty,
// or when it has not changed for leaseDurationSeconds since the candidate first saw it
// so, by the candidate's own clock, which runs on while the machine is suspended. The times in
// the record are for people: nobody's clock is compared with another's. Each write is made from
// a record that was read, and fails if it is not the newest any more (409 Conflict), so of several
// candidates one wins, and one that the leader came before does not.
//
//	leader      write ───── write ───── write ─ ✗
//	candidate     │ changed  │ changed  │ changed
//	              └──────────┴──────────┴── leaseDurationSeconds ──▶ write: leads
//
// A release empties the holder, and is seen through a watch at once. What an attempt
// left whose answer was lost is found by its suffix. Release also makes void what may
// still be under way: it writes the record, so that the late request meets a conflict.
//
// # Together with client-go
//
// The electors of client-go's tools/leaderelection can stand for election on the same
// Lease: they and those of this package exclude each other, release to each other,
// and count one series of terms. Two things are to be known.
//
//   - They compare records in whole seconds, and so expect the end of a lease up to a second
//     early. Against that, of renewals within one second all but the first last a
//     second longer. Among themselves they have no such remedy: LeaseDuration -
//     RenewDeadline - RetryPeriod should be more than a second.
//   - They release without waiting for work to end, and a term that begins after one of
//     theirs has no clean start: Config.SettleDelay applies.
//
// # What it guarantees
//
// What package leader says, with terms that rise in all processes. A leader that is
// stopped, cut off, or whose API is down stops leading before another can lead, as
// far as clocks run at the same rate.
//
// # What it does not guarantee
//
//   - A Lease is no fence: what a leader does to the outside world after its context has
//     ended is not held up. Compare terms there.
//   - Who may write the Lease can end the leadership: it finds out at its next renewal. One who
//     deletes it lets another lead at once, until then beside the first. Terms go on if the
//     Backend that creates it again saw them, and begin again otherwise, as they must
//     after 2147483647.
//   - A control plane that was restored from a backup may repeat terms.
//
// # When something fails
//
//	API is down for less than the lease   renewals fail, and one of the next succeeds
//	API is down for longer                the leader's context ends; one leads soon after it is back
//	answer of a write is lost             the next one finds what it did
//	Lease is deleted                      ErrLost at the next renewal; the first candidate creates it
//	namespace is missing                  an error that names it, at each attempt
//	watch is forbidden                    one warning; followers poll, each two seconds or so
//	watch ends, or is silent              it is opened again
//	TTL is not whole seconds              an error that says so, at each attempt
//
// # What it needs
//
// The verbs get, create, update and watch on leases of coordination.k8s.io. In
// ordinary times a leader sends one PUT each RenewInterval, and a follower one GET
// each Retry interval, beside a watch; with the watch, an interval as long as the lease
// does.
package kubernetes
