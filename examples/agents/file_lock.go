package agents

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks the file at path and waits without a time limit. The lock excludes other
// threads and other processes of this host. It is on a separate file, path.lock, which is
// never renamed or deleted: a rename puts another file at the path, and a lock on the old
// file excludes nobody.
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
