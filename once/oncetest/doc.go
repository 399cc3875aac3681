// Package oncetest is the conformance suite of package once, which each once.Store has to pass.
//
//	func TestItConforms(t *testing.T) {
//		oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store { … }})
//	}
//
// For tests of programs, leased.New(leasetest.NewStore()) is a Store in memory.
package oncetest
