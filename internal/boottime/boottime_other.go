//go:build !linux

package boottime

import "time"

// Now is the time since some fixed moment, on the monotonic clock: outside Linux,
// whether it runs on while the machine is suspended depends on the system.
func Now() time.Duration { return monotonic() }

// Shared is Now, and false: no other process has this clock.
func Shared() (now time.Duration, ok bool) { return monotonic(), false }
