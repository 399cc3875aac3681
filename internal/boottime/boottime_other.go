//go:build !linux

package boottime

import "time"

// Now returns the time since some fixed moment, on the monotonic clock. Outside Linux,
// it depends on the system whether that clock keeps running while the machine is
// suspended.
func Now() time.Duration { return monotonic() }

// Shared is Now, and returns false: no other process has this clock.
func Shared() (now time.Duration, ok bool) { return monotonic(), false }
