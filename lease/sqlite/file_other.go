//go:build !linux

package sqlite

import (
	"math"
	"os"
)

// lockInode takes no lock, because here flock and SQLite's locks would exclude each other, even in
// one process. Other Stores of this process are known. It checks that the file can be opened, while
// SQLite has no locks on it that closing a descriptor would end.
func lockInode(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return nil, f.Close()
}

// space is unknown on this system.
func space(string) (uint64, error) { return math.MaxUint64, nil }
