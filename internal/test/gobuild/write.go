package gobuild

import (
	"os"
	"syscall"
)

// WriteExecutable writes a program, or a script, that the test then runs. No child of this process starts meanwhile:
// between its fork and its exec a child would keep the file open for writing. Running the file would then fail with
// "text file busy" (https://github.com/golang/go/issues/22315).
func WriteExecutable(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755) //nolint:gosec // other users run it too
}
