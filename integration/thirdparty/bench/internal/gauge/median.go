// Package gauge measures what processes use, and takes medians.
package gauge

import (
	"cmp"
	"slices"
)

// Median returns the middle value, the upper one of two, or zero if there is none. It does
// not change values.
func Median[T cmp.Ordered](values []T) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// MedianOf returns the median of a part of each value.
func MedianOf[V any, T cmp.Ordered](values []V, part func(V) T) T {
	parts := make([]T, len(values))
	for i, v := range values {
		parts[i] = part(v)
	}
	return Median(parts)
}
