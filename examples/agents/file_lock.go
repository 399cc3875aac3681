package agents

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock of the file at path, and waits as long as it takes. It
// excludes other threads and other processes of this host. The lock is on a file of
// its own, path.lock, that is never renamed or deleted: a rename gives a path another
// file, and whoever has locked the old one excludes nobody.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "flock", Path: f.Name(), Err: err}, f.Close())
	}
	return f.Close, nil // closing unlocks
}
