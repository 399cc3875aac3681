package boottime

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// unreadable is set for good when the kernel refused the clock, as under a seccomp
// filter: two clocks are never mixed.
var unreadable atomic.Bool

// start is the clock at processStart; 0 if it cannot be read.
var start, _ = read()

// Now is the time since some fixed moment. It reads CLOCK_BOOTTIME:
// CLOCK_MONOTONIC, which package time uses, stands still while a virtual machine
// is suspended. Where it cannot be read, Now goes on as package time's does.
func Now() time.Duration {
	now, _ := Shared()
	return now
}

// Shared is Now, and reports whether it is CLOCK_BOOTTIME, which the processes of a
// boot share (but for time namespaces).
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
