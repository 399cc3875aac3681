package sqlite

import (
	"os"

	"github.com/gofrs/flock"
)

// lockInode locks the file itself, whatever its name. On Linux flock(2) is another lock
// than those of fcntl(2), which SQLite takes.
func lockInode(path string) (*fileLock, error) {
	return tryLock(flock.New(path, flock.SetFlag(os.O_RDWR)))
}
