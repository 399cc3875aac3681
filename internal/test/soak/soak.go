// Package soak sets the size of tests that repeat something: races, rounds of faults, histories.
package soak

import (
	"os"
	"testing"
)

// Variable selects the long form of all of these tests, if it is 1. make soak sets it.
const Variable = "PGLATCH_SOAK"

// Size returns short, or long in the long form.
func Size[T any](tb testing.TB, short, long T) T {
	tb.Helper()
	switch value := os.Getenv(Variable); value {
	case "", "0":
		return short
	case "1":
		return long
	default:
		tb.Fatalf("%s is %q: set it to 1 for the long form, or leave it out", Variable, value)
		panic("unreachable")
	}
}
