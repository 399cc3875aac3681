package demokit

import (
	"os"

	"golang.org/x/sys/unix"
)

// widthOf is how many columns a terminal has now, 0 if the file is none.
func widthOf(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
