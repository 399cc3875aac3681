// Package leadertest has an in-memory election, for tests of programs that use package leader, and the
// conformance suite that every leader.Backend passes.
//
// An Election is the store that the nodes of one election share. Each node's Elector gets a Backend of its
// own:
//
//	election := leadertest.NewElection()
//	a, err := leader.New(leader.Config{Name: "scheduler", Backend: election.Backend()})
//	b, err := leader.New(leader.Config{Name: "scheduler", Backend: election.Backend()})
//
// It measures time only with package time, and starts no goroutine that waits for anything else. So it also
// works inside a bubble of testing/synctest, where a test need not wait for the end of a one-hour lease. The
// methods Kill, Cut, SetUnavailable and Steal inject faults.
//
// A Backend has all optional abilities. To test a program on a backend with fewer abilities, embed
// only the interfaces that should remain:
//
//	plain := struct{ leader.Backend }{election.Backend()}
package leadertest
