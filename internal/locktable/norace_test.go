//go:build !race

package locktable

// explorationBound is 0: each state is visited.
const explorationBound = 0
