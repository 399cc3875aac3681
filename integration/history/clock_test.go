//go:build integration

package history

import (
	"syscall"
	"unsafe"
)

// monotonic is CLOCK_MONOTONIC in nanoseconds, the same for all processes.
func monotonic() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return ts.Nano()
}
