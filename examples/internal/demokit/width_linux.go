package demokit

import (
	"os"
	"syscall"
	"unsafe"
)

// widthOf is how many columns a terminal has now, 0 if the file is none.
func widthOf(file *os.File) int {
	var size struct{ rows, columns, x, y uint16 } // struct winsize of ioctl_tty(2)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	return int(size.columns)
}
