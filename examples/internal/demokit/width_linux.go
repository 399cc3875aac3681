package demokit

import (
	"os"

	"golang.org/x/sys/unix"
)

// widthOf returns a terminal's current width in columns, or 0 if the file is not a terminal.
func widthOf(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
