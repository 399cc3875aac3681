package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pglatch/pglatch/lease"
)

// The conditions of a file that a *FileError reports.
var (
	ErrInUse    = errors.New("another process has the file open; stop it, or use another file")
	ErrFull     = errors.New("disk is full; nothing was changed, and the store works again when there is space")
	ErrReadOnly = errors.New("file or its directory cannot be written; check owner, mode and mount")
	ErrCorrupt  = errors.New("file is damaged; stop, keep a copy of it and of its -wal file, and restore a backup")
	ErrForeign  = errors.New("file is no lease store of this version; use another file, or the version of pglatch that made it")
	ErrMissing  = errors.New("directory does not exist; create it")
	ErrIO       = errors.New("file could not be read or written; whether the last transaction was kept is unknown")
)

// ErrClosed is the error of a closed Store. Nothing was done. It matches lease.ErrClosed.
var ErrClosed = fmt.Errorf("lease/sqlite: %w", lease.ErrClosed)

// errCrowded is the cause of a *lease.BusyError.
var errCrowded = fmt.Errorf("%d requests wait already", maxWaiting)

// retryBusy is how long clients should wait. For a full disk the wait is longer, because a person
// has to make space.
const (
	retryBusy = 50 * time.Millisecond
	retryFull = time.Second
)

// A FileError describes a problem with the file. Its Condition is one of the conditions of
// this package, for errors.Is.
type FileError struct {
	Op        string // the operation: "open", "begin", …
	Path      string
	Condition error
	Cause     error // the error of SQLite or the system; may be nil
	Stopped   bool  // the Store has stopped permanently: the error matches lease.ErrBroken
}

func (e *FileError) Error() string {
	text := fmt.Sprintf("lease/sqlite: %s %s: %v", e.Op, e.Path, e.Condition)
	if e.Cause != nil {
		text += fmt.Sprintf(" (%v)", e.Cause)
	}
	return text
}

// Is reports whether target is e's Condition. It also matches lease.ErrNotReady for conditions in
// which nothing was done, and lease.ErrBroken if the Store has stopped.
func (e *FileError) Is(target error) bool {
	return target == e.Condition || target == lease.ErrNotReady && e.Condition == ErrReadOnly ||
		target == lease.ErrBroken && e.Stopped
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Cause }

// A damage is what was found damaged. From then on, nothing more is read or written.
type damage struct{ atomic.Pointer[FileError] }

func (d *damage) found() error {
	if e := d.Load(); e != nil {
		return e
	}
	return nil
}

func (d *damage) stop(e FileError) error {
	e.Stopped = true
	d.Store(&e)
	return &e
}

// explain converts SQLite's errors. If nothing was changed and another try may succeed, the result
// is a *lease.BusyError, else a *FileError.
func explain(op, path string, err error) error {
	var explained *FileError
	if errors.As(err, &explained) {
		return err
	}
	for _, known := range []error{ErrCorrupt, ErrForeign} {
		if errors.Is(err, known) {
			return &FileError{Op: op, Path: path, Condition: known, Cause: err}
		}
	}
	var e *driver.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("lease/sqlite: %s %s: %w", op, path, err)
	}
	if code := e.Code() & 0xff; code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED {
		return &lease.BusyError{Retry: retryBusy, Cause: err}
	}
	explained = &FileError{Op: op, Path: path, Condition: condition(e.Code()), Cause: err}
	if errors.Is(explained, ErrFull) {
		return &lease.BusyError{Retry: retryFull, Cause: explained}
	}
	return explained
}

// condition maps an extended result code, https://www.sqlite.org/rescode.html.
func condition(code int) error {
	switch code {
	case sqlite3.SQLITE_IOERR_SHMSIZE: // the index of the WAL could not grow
		return ErrFull
	case sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_DATA:
		return ErrCorrupt
	}
	switch code & 0xff {
	case sqlite3.SQLITE_FULL:
		return ErrFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return ErrReadOnly
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrCorrupt
	case sqlite3.SQLITE_ERROR: // all statements are constants, so the tables are not ours
		return ErrCorrupt
	default:
		return ErrIO
	}
}

// explainSystem converts an operating system's error on opening to a *FileError.
func explainSystem(path string, err error) error {
	condition := ErrIO
	switch {
	case errors.Is(err, ErrInUse):
		condition, err = ErrInUse, nil
	case errors.Is(err, ErrCorrupt):
		condition = ErrCorrupt
	case errors.Is(err, fs.ErrNotExist):
		condition = ErrMissing
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EISDIR):
		condition = ErrReadOnly
	case errors.Is(err, syscall.ENOSPC):
		condition = ErrFull
	}
	return &FileError{Op: "open", Path: path, Condition: condition, Cause: err}
}
