package file

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/pglatch/pglatch/leader/driver"
)

// A CorruptError reports that a file of the election was not written by a Backend of this version: it is
// truncated or empty, has wrong types, is too long, or is from a newer version. Nothing was changed. Nobody can acquire or renew
// leadership until the file is repaired.
type CorruptError struct {
	Path   string
	Reason string // description of the damage
	Remedy string // how to repair it

	foreign bool // WithRepair does not replace it
	passing bool // an attempt will replace it
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt: %s: %s", e.Path, e.Reason, e.Remedy)
}

// remedies are for the most frequent errors of file systems.
var remedies = []struct {
	condition error
	remedy    string
	permanent bool // permanent until somebody applies the remedy
}{
	{syscall.ENOSPC, "the disk is full", false},
	{syscall.EROFS, "the file system is read-only; use another directory", true},
	{fs.ErrPermission, "all processes of the election run as a user who may write in the directory", true},
	{fs.ErrNotExist, "create the directory", true},
}

// Is reports whether target is leader.ErrPermanent, unless WithRepair is going to replace the file.
func (e *CorruptError) Is(target error) bool { return target == driver.ErrPermanent && !e.passing }

// failed adds the operation that failed, and the remedy if it is known.
func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	for _, r := range remedies {
		if errors.Is(err, r.condition) {
			err = fmt.Errorf("leader: %s %s: %w: %s", op, path, err, r.remedy)
			if r.permanent {
				return driver.Permanent(err)
			}
			return err
		}
	}
	return fmt.Errorf("leader: %s %s: %w", op, path, err)
}
