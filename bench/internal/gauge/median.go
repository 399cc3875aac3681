package gauge

import (
	"cmp"
	"slices"
)

// Median is the middle value, the upper of two; zero if there is none. values are
// left as they are.
func Median[T cmp.Ordered](values []T) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
