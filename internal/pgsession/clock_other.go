//go:build !linux

package pgsession

import "time"

// bootNow is the monotonic clock: outside Linux, whether it runs on while the
// machine is suspended depends on the system.
func bootNow() time.Duration { return monotonicNow() }
