// Package kubernetes elects a leader with a Lease object of the Kubernetes API. It is a separate module, so
// that no other part of pglatch depends on client-go:
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
//		elector, err := leader.New(leader.Config{Name: "my-app", Backend: backend, Identity: os.Getenv("POD_NAME")})
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
// Module adapters/clientgolock does the opposite: it runs the elector of client-go, and managers
// of controller-runtime, on leases of pglatch, without a Lease object.
//
// examples/thirdparty/kubernetes has the whole program, its image, its rights, its Deployment, and a Service that
// always points to the leader.
//
// # The record
//
//	holderIdentity        the leader: identity_suffix; empty = nobody
//	leaseDurationSeconds  how long leadership lasts without a renewal
//	renewTime             the last renewal, by the leader's clock
//	acquireTime           the start of the term, by the leader's clock
//	leaseTransitions      the term
//
// The suffix is random and new in each Backend. So two pods with the same name, or a pod and its
// restarted successor, are never confused.
//
// A leader rewrites the record at each renewal. A candidate takes the Lease when its holder is empty, or
// when the record has not changed for leaseDurationSeconds since the candidate first saw it. The candidate
// uses its own clock, which keeps running while the machine is suspended. The times in the record are for
// people: no machine's clock is compared with another's.
//
// Each write is based on a record that was read, and fails if that record is no longer the newest (409
// Conflict). So only one of several candidates wins. If a candidate's write comes after the leader's, the
// candidate loses.
//
//	leader      write ───── write ───── write ─ ✗
//	candidate     │ changed  │ changed  │ changed
//	              └──────────┴──────────┴── leaseDurationSeconds ──▶ write: leads
//
// A release empties the holder, and a watch shows that at once. If the answer to an attempt was lost, the
// suffix in the record shows whether the attempt succeeded. Release also invalidates requests that may still
// be under way: it writes the record, so that a late request meets a conflict.
//
// # Together with client-go
//
// The electors of client-go's tools/leaderelection can take part in an election on the same Lease. They and
// the electors of this package exclude each other, hand over to each other on release, and continue one
// series of terms. There are two differences.
//
//   - Electors of client-go compare records in whole seconds, and so expect the end of a lease up to a second
//     early. To compensate, if this package renews several times within one second, each renewal after
//     the first writes a leaseDurationSeconds that is greater by one. Electors of client-go do not compensate
//     for each other: LeaseDuration - RenewDeadline - RetryPeriod should be more than a second.
//   - Electors of client-go release without waiting for work to end. So after such an
//     Elector has led, the next term has no clean start: Config.SettleDelay applies.
//
// # What it guarantees
//
// The guarantees of package leader, with terms that rise in all processes. If a leader is stopped or cut off,
// or its API is down, it stops leading before another can lead, provided that clocks run at the same rate.
//
// # What it does not guarantee
//
//   - A Lease is not a fence: it does not stop a leader's effects on the outside world after its context has
//     ended. Compare terms there.
//   - Anybody who may write the Lease can end the leadership. The leader detects that at its next renewal.
//     If somebody deletes the Lease, another node leads at once, and both nodes lead until that renewal.
//     Terms continue if the Backend that creates the Lease again has seen them. Otherwise they start over,
//     as they also do after 2147483647.
//   - A control plane that was restored from a backup may repeat terms.
//
// # When something fails
//
//	API is down for less than the lease   renewals fail until the API is back; leadership continues
//	API is down for longer                the leader's context ends; a node leads soon after the API is back
//	answer of a write is lost             the next write finds its result
//	Lease is deleted                      ErrLost at the next renewal; the first candidate creates it
//	namespace is missing                  an error that names it, at each attempt
//	watch is forbidden                    one warning; followers poll, every two seconds or so
//	watch ends, or is silent              it is opened again
//	TTL is not whole seconds              an error that says so, at each attempt
//
// # What it needs
//
// The verbs get, create, update and watch on leases of coordination.k8s.io. In normal operation a leader
// sends one PUT per RenewInterval. A follower sends one GET per Retry interval, in addition to a watch.
// With the watch, an interval as long as the lease is enough.
package kubernetes
