//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// A fileLock keeps other processes, and other Stores of this one, away from a file. Its Unlock also
// ends the lock for a process that was forked at this moment and has not closed its copy of the
// descriptor yet.
type fileLock struct{ *flock.Flock }

// lockFile takes the lock beside a store's file. The lock has a file of its own, which is never
// renamed or deleted.
func lockFile(path string) (*fileLock, error) {
	return tryLock(flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(fileMode)))
}

func tryLock(l *flock.Flock) (*fileLock, error) {
	for {
		locked, err := l.TryLock()
		switch {
		case errors.Is(err, syscall.EINTR):
			continue // a file system may need the network for it
		case err != nil:
			return nil, err
		case !locked:
			return nil, ErrInUse
		}
		return &fileLock{l}, nil
	}
}

// write writes the file, by another descriptor: flock(2) prevents no writes.
func (l *fileLock) write(text string) error {
	f, err := os.OpenFile(l.Path(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
