package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes data written to f survive a crash of the machine.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
