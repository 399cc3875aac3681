// Package clientgolock lets the leader election of client-go, and a manager of
// controller-runtime, run on a lease store of ours in place of a Lease of the Kubernetes
// API: on PostgreSQL, or on a lock server. A controller needs no rights on leases then, and
// an operator can run where there is no Kubernetes at all.
//
//	lock, err := clientgolock.New(store, clientgolock.Config{Name: "my-operator"})
//	…
//	manager, err := ctrl.NewManager(config, ctrl.Options{
//		LeaderElection:                      true,
//		LeaderElectionResourceLockInterface: lock,
//	})
//
// or leaderelection.LeaderElectionConfig{Lock: lock, …}. Package leader/kubernetes of this
// project is the opposite: our elector on the leases of Kubernetes. A program that is not
// bound to client-go's elector is better off with package leader, which ends the work
// before the lease does and says which term it is.
//
// # What it guarantees
//
//   - One candidate at a time has the lease, by the clock of the store. Clocks of candidates
//     need not agree: what client-go writes about time is kept for people and not looked at.
//   - An update by who does not have the lease is refused with a conflict: it is compared
//     with the claim of the lease (holder, random id and fencing token), and a takeover also
//     with the version that the last Get returned.
//   - A leadership is one lease. client-go's elector, when it was stopped for long, finds the
//     Lease free and takes it again without having told anybody that another led meanwhile.
//     Here a lost lease stays lost until the elector has stopped: Get and Update fail with an
//     error that matches ErrLost, the elector's renewals run into RenewDeadline, and
//     OnStoppedLeading is called.
//   - Two candidates with one identity exclude each other, where client-go takes both for the
//     leader. ReleaseOnCancel gives the lease back, and never that of a successor.
//   - Token is the fencing token of the lease, for what is written while leading.
//   - The answer to a takeover may be lost: the next try gets the same lease.
//
// # What it does not guarantee
//
// What client-go does not: that work has ended when another leads. Its elector ends the
// context of OnStartedLeading up to RenewDeadline + RetryPeriod after its last good renewal,
// before the lease ends after LeaseDuration; a process that is stopped meanwhile goes on
// when it wakes up, until it looks. Only the token keeps its late writes out. With
// ReleaseOnCancel the elector gives up the lease without waiting for OnStartedLeading to return.
//
// LeaderTransitions counts leaders, and begins again at 0 when the store has forgotten the
// name (lease.SweepRequest.Retention), as when somebody deletes a Lease. Two takeovers at the
// same moment, of which one has already ended, can be counted as one. Coordinated leader
// election, which needs LeaseCandidates of the Kubernetes API, is not supported.
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
