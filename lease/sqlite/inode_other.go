//go:build !linux

package sqlite

import "os"

// lockInode takes no lock: here flock and the locks of SQLite would exclude each other, in
// one process too. Other Stores of this process are known. It sees whether the file can be
// opened, while SQLite has no locks on it that the end of a descriptor would end.
func lockInode(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return nil, f.Close()
}
