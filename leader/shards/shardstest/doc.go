// Package shardstest has an in-memory store of shards, for tests of programs that use package shards, and the
// conformance suite that every backend of that package passes.
//
// The nodes of one group share a Store. Each node gets a Backend of its own:
//
//	store := shardstest.NewStore()
//	a, err := shards.New(shards.Config{Name: "tenants", Backend: store.Backend(), Shards: tenants})
//	b, err := shards.New(shards.Config{Name: "tenants", Backend: store.Backend(), Shards: tenants})
//
// It measures time only with package time, and starts no goroutine, so it also works inside a bubble of
// testing/synctest. The methods Kill, Cut, SetUnavailable, SetDelay and Hide inject faults.
package shardstest
