//go:build !linux

package sqlite

import "math"

// space is unknown on this system.
func space(string) (uint64, error) { return math.MaxUint64, nil }
