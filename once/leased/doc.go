// Package leased keeps the claims of package once in any lease.Store: a lock server, a file of
// lease/sqlite, or lease/postgres.
//
//	locks, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
//	…
//	runner, err := once.New(once.Config{Store: leased.New(locks)})
//
// A tick has two names in the store: one for its lease, as long as it runs, and one that records
// how it ended, for a day. So a Window is at most 23 hours, and a job that ticks once a minute
// has about 1,500 names in the store. The store's Sweep removes the names of old ticks.
//
// # What it guarantees
//
// The guarantees of package once and of the lease.Store. There is one exception. If a run outlives
// its claim, for example because its process was stopped, it may end at the moment when another
// node claims the tick. In that case that node may repeat the tick. The two runs record their ends
// in separate operations, and the later End returns a *once.LostError. On PostgreSQL, use
// once/postgres, where checking the claim and recording the end are one operation.
package leased
