package sqlite

import (
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// lockInode locks the file itself, whatever its name. On Linux, flock(2) locks are independent of
// the fcntl(2) locks that SQLite takes.
func lockInode(path string) (*fileLock, error) {
	return tryLock(flock.New(path, flock.SetFlag(os.O_RDWR)))
}

// space returns how many bytes this user can still write in a directory.
func space(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}
