package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mark is what a lock file says once the store was created. Without it, a file that
// was lost or cut to nothing would be taken for that of a new store, and tokens
// would begin anew.
const mark = "The file beside this one is a lease store. To begin anew, remove both.\n"

// ownFile takes the lock of the file and creates the file if it is new. It returns
// its path without links, so that nobody takes another lock for the same file.
func ownFile(path string) (string, *os.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return path, nil, err
	}
	if linked, err := filepath.EvalSymlinks(path); err == nil {
		path = linked
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	} else {
		return path, nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return path, nil, err
	}
	if err := create(path, lock); err != nil {
		return path, nil, errors.Join(err, lock.Close())
	}
	return path, lock, nil
}

// create makes an empty file that survives a crash, if there never was one. SQLite
// gives its other files the same mode.
func create(path string, lock *os.File) error {
	locked, err := lock.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) && locked.Size() == 0 {
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode); err == nil {
			err = errors.Join(f.Sync(), syncDir(filepath.Dir(path)))
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s says that it existed", ErrCorrupt, lock.Name())
	}
	if f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() == 0 && locked.Size() > 0 {
		return fmt.Errorf("%w: it is empty, and %s says that it was not", ErrCorrupt, lock.Name())
	}
	return err
}

// markCreated notes in the lock file that the store exists.
func markCreated(lock *os.File) error {
	if _, err := lock.WriteAt([]byte(mark), 0); err != nil {
		return err
	}
	return lock.Sync()
}
