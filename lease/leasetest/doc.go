// Package leasetest has a lease.Store in memory, for tests of programs that use
// leases, and the conformance suite that every lease.Store passes.
//
//	store := leasetest.NewStore()
//
// It measures time with package time alone and starts no goroutine, so it also works
// inside a bubble of testing/synctest, where a lease of an hour ends at once.
//
// A store of one's own is tested by one call:
//
//	leasetest.Run(t, leasetest.Harness{New: func(t *testing.T) lease.Store { … }})
//
// A History records what clients of any store were answered, also while servers die and
// answers are lost, and checks it against the model of a lease. Clients in other processes and languages
// write down Operations for it.
package leasetest
