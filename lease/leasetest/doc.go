// Package leasetest has an in-memory lease.Store, for tests of programs that use leases, and
// the conformance suite that every lease.Store passes.
//
//	store := leasetest.NewStore()
//
// It measures time only with package time and starts no goroutine. So it also works inside a bubble
// of testing/synctest, where a test need not wait for the end of a one-hour lease.
//
// To test your own store, call:
//
//	leasetest.Run(t, leasetest.Harness{New: func(t *testing.T) lease.Store { … }})
//
// A History records the answers that the clients of any store receive, even while servers die and
// answers are lost. It checks these answers against the model of a lease. Clients in other
// processes and languages can write Operations for it.
package leasetest
