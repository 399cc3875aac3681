// Package shardstest has a store of shards in memory, for tests of programs that use package
// shards, and the conformance suite that every backend of it passes.
//
// A Store is what the nodes of one group share; each node gets a Backend of its own:
//
//	store := shardstest.NewStore()
//	a, err := shards.New(shards.Config{Name: "tenants", Backend: store.Backend(), Shards: tenants})
//	b, err := shards.New(shards.Config{Name: "tenants", Backend: store.Backend(), Shards: tenants})
//
// It measures time with package time alone and starts no goroutine, so it also works inside a
// bubble of testing/synctest. Faults are injected by calls: Kill, Cut, SetUnavailable, SetDelay
// and Hide.
package shardstest
