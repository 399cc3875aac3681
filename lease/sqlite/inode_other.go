//go:build !linux

package sqlite

import "os"

// lockInode does nothing: here flock and the locks of SQLite would exclude each other, in
// one process too. Other Stores of this process are known.
func lockInode(*os.File) error { return nil }
