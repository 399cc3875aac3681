package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// A fileLock keeps other processes, and other Stores of this one, away: while a file is open
// without sharing, nobody else can open it. It does not use gofrs/flock, which locks the first
// byte. On Windows such a lock keeps every other descriptor from writing that byte, flock does not
// expose its own descriptor, and others could remove the file meanwhile.
type fileLock struct{ *os.File }

// lockFile takes the lock beside a store's file. The lock has a file of its own, which is never
// renamed or deleted.
func lockFile(path string) (*fileLock, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil,
		windows.OPEN_ALWAYS, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, ErrInUse
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &fileLock{os.NewFile(uintptr(handle), path)}, nil
}

func (l *fileLock) Path() string { return l.Name() }

func (l *fileLock) Unlock() error { return l.Close() }

// write writes the file.
func (l *fileLock) write(text string) error {
	_, err := l.WriteAt([]byte(text), 0)
	return errors.Join(err, l.Sync())
}
