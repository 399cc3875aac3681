package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// unreadable is set for good if the kernel refuses the clock, for example under a seccomp
// filter. The two clocks must never be mixed.
var unreadable atomic.Bool

// start is the clock at processStart, or 0 if it cannot be read.
var start, _ = read()

// Now returns the time since some fixed moment. It reads CLOCK_BOOTTIME, because
// CLOCK_MONOTONIC, which package time uses, stands still while a virtual machine is
// suspended. If CLOCK_BOOTTIME cannot be read, Now continues with package time's clock.
func Now() time.Duration {
	now, _ := Shared()
	return now
}

// Shared is Now, and reports whether the clock is CLOCK_BOOTTIME. The processes of a boot
// share that clock (except across time namespaces).
func Shared() (now time.Duration, ok bool) {
	if now, ok = read(); !ok {
		now = start + monotonic()
	}
	return now, ok
}

func read() (now time.Duration, ok bool) {
	if unreadable.Load() {
		return 0, false
	}
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		unreadable.Store(true)
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
