package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/syncdir"
)

// mark is the content of a lock file once its store has been created. Without it, a store whose
// file was lost or emptied would look like a new store, and its tokens would start again.
const mark = "The file beside this one is a lease store. To begin anew, remove both.\n"

// An owner holds the locks of the file. One is on its name, in a file beside it. The other is on
// the file itself, which has the same content under any name.
type owner struct {
	lock *fileLock // beside the file
	file *fileLock // nil = not locked yet, or not lockable on this system
	info os.FileInfo
}

// ownFile takes the locks of the file and creates the file if it is new. It returns the file's path
// without links, so that no other path leads to another lock for the same file.
func ownFile(path string) (string, *owner, error) {
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
	o := &owner{lock: lock}
	if err = create(path, lock); err == nil {
		err = o.ownInode(path)
	}
	if err != nil {
		return path, nil, errors.Join(err, o.Close())
	}
	return path, o, nil
}

// create makes an empty file that survives a crash, if there never was one. SQLite gives its other
// files the same mode. create does not open an existing file: see owned.
func create(path string, lock *fileLock) error {
	locked, err := lock.Stat()
	if err != nil {
		return err
	}
	existed := locked.Size() > 0
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Size() == 0 && existed:
		return fmt.Errorf("%w: it is empty, and %s says that it was not", ErrCorrupt, lock.Path())
	case errors.Is(err, fs.ErrNotExist) && existed:
		return fmt.Errorf("%w: %s says that it existed", ErrCorrupt, lock.Path())
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), syncdir.Sync(filepath.Dir(path)), f.Close())
}

// owned are the files that this process has, under any name. This must be known without opening
// them. SQLite's POSIX locks on the file belong to the process. They end when the process closes
// any descriptor of the file, even one on which a lock was refused.
var owned struct {
	sync.Mutex

	files []*owner
}

// ownInode takes the lock of the file itself. Two names of a file, by a hard link or a bind mount,
// have two files path.lock and two -wal. Each -wal would lack the other's leases.
func (o *owner) ownInode(path string) error {
	owned.Lock()
	defer owned.Unlock()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(owned.files, func(other *owner) bool { return os.SameFile(info, other.info) }) {
		return ErrInUse
	}
	if o.file, err = lockInode(path); err != nil {
		return err
	}
	o.info = info
	owned.files = append(owned.files, o)
	return nil
}

// Close releases both locks. SQLite has closed the file before.
func (o *owner) Close() error {
	owned.Lock()
	defer owned.Unlock()
	owned.files = slices.DeleteFunc(owned.files, func(other *owner) bool { return other == o })
	var err error
	if o.file != nil {
		err = o.file.Unlock()
	}
	return errors.Join(err, o.lock.Unlock())
}
