// Package clientgolock runs the leader election of client-go, and of a controller-runtime manager,
// on a lease store of pglatch instead of a Lease of the Kubernetes API: on PostgreSQL, or on a lock
// server. A controller then needs no rights on leases, and an operator can run without Kubernetes.
//
//	lock, err := clientgolock.New(store, clientgolock.Config{Name: "my-operator"})
//	…
//	manager, err := ctrl.NewManager(config, ctrl.Options{
//		LeaderElection:                      true,
//		LeaderElectionResourceLockInterface: lock,
//	})
//
// or leaderelection.LeaderElectionConfig{Lock: lock, …}. Package leader/kubernetes does the
// opposite: it runs pglatch's Elector on the leases of Kubernetes. A program that is not bound to
// client-go's elector should use package leader, which ends the work before the lease does and
// names the term.
//
// # What it guarantees
//
//   - One candidate at a time has the lease, by the clock of the store. Candidates' clocks need not
//     agree: the times that client-go writes are kept for people and otherwise ignored.
//   - An update by a candidate without the lease is refused with a conflict. It is compared with
//     the claim of the lease (holder, random id and fencing token), and a takeover also with the
//     version that the last Get returned.
//   - A leadership is one lease. On a Lease of Kubernetes, if client-go's elector was stopped for
//     long, it finds the Lease free and takes it again, without reporting that another candidate
//     led meanwhile. Here, a lost lease stays lost until the elector has stopped: Get and Update
//     fail with an error that matches ErrLost, the elector's renewals run into RenewDeadline, and
//     OnStoppedLeading is called.
//   - Two candidates with one identity exclude each other, whereas client-go takes both for
//     the leader. ReleaseOnCancel releases this candidate's lease, and never that of a
//     successor.
//   - Token is the fencing token of the lease, for writes while leading.
//   - If the answer to a takeover is lost, the next try gets the same lease.
//
// # What it does not guarantee
//
// client-go does not guarantee that work has ended when another candidate leads, and neither does
// this package. Its elector ends the context of OnStartedLeading up to RenewDeadline + RetryPeriod
// after its last good renewal, before the lease ends after LeaseDuration. A process that is stopped
// in that time continues its work when it resumes, until it checks. Only the token fences off its
// late writes. With ReleaseOnCancel the elector gives up the lease without waiting for
// OnStartedLeading to return.
//
// LeaderTransitions counts leaders. It starts again at 0 when the store has forgotten the name
// (lease.SweepRequest.Retention), as when somebody deletes a Lease. Two takeovers at the same
// moment can be counted as one if one of them has already ended. Coordinated leader election, which
// needs LeaseCandidates of the Kubernetes API, is not supported.
//
// # When things go wrong
//
//	the leader dies                  the lease ends after LeaseDuration; a candidate takes over at its next RetryPeriod
//	the store cannot be reached      the leader stops within RenewDeadline; nobody leads until it is back
//	the lease ended, or was taken    the leader stops within RenewDeadline, with ErrLost in client-go's log
//	a renewal's answer is lost       the next renewal repeats it
//	the release is lost              the lease ends after LeaseDuration
//	the process is stopped           the lease ends; the elector stops within RenewDeadline of waking up
package clientgolock
