package pgsession

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// bootNow reads CLOCK_BOOTTIME. CLOCK_MONOTONIC, which package time uses, stands
// still while a virtual machine is suspended; the server's timeout does not.
func bootNow() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonicNow()
	}
	return time.Duration(ts.Nano())
}
