// Package leased keeps the claims of package once in any lease.Store: a lock server, a file of
// lease/sqlite, or lease/postgres.
//
//	locks, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	runner, err := once.New(once.Config{Store: leased.New(locks)})
//
// A tick has two names in the store: one for its lease, as long as it runs, and one that records
// how it ended, for a day. So a Window is 23 hours at most, and a job that ticks each minute has
// some 1,500 names in the store. The store's Sweep removes the names of old ticks.
//
// # What it guarantees
//
// The guarantees of package once and of the lease.Store. There is one exception. If a run outlives
// its claim, for example because its process was stopped, it may end at the moment when another
// node claims the tick. Then that node may have repeated the tick. Each of the two ends is recorded
// in an operation of its own, and the later End returns a *once.LostError. In PostgreSQL, use
// once/postgres, where they are one operation.
package leased
