package boottime

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of linux/time.h

// Now is the time since some fixed moment. It reads CLOCK_BOOTTIME:
// CLOCK_MONOTONIC, which package time uses, stands still while a virtual machine
// is suspended.
func Now() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonic()
	}
	return time.Duration(ts.Nano())
}
