package sqlite

import (
	"os"

	"github.com/gofrs/flock"
)

// lockInode locks the file itself, whatever its name. On Linux, flock(2) locks are independent of
// the fcntl(2) locks that SQLite takes.
func lockInode(path string) (*fileLock, error) {
	return tryLock(flock.New(path, flock.SetFlag(os.O_RDWR)))
}
