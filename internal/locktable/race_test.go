//go:build race

package locktable

// explorationBound bounds the states of each scenario under the race detector, which makes an exploration ten times slower and has
// nothing to find in one goroutine.
const explorationBound = 100
