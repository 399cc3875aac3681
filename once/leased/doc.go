// Package leased keeps the claims of package once in any lease.Store: a lock server, a file of
// lease/sqlite, or lease/postgres.
//
//	locks, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	runner, err := once.New(once.Config{Store: leased.New(locks)})
//
// A tick is two names in the store: that of its lease, as long as it runs, and one that says how it
// ended, for a day. So a Window is 23 hours at most, and a job that ticks each minute has some 1,500 names in the
// store. Names of ticks are forgotten by the store's Sweep.
//
// # What it guarantees
//
// What package once and the lease.Store do. A run that outlives its claim, in a process that was stopped for
// example, and ends in the moment in which another node claims the tick, may have been repeated by that one:
// the two notes of the end are two operations, and it is the later End that returns a *once.LostError. In
// PostgreSQL use once/postgres, where they are one.
package leased
