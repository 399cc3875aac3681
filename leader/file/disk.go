package file

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// errUnlocked means that another process may be writing at the same time.
var errUnlocked = errors.New("the lock file was removed meanwhile, nothing was changed: never remove it while a process of the election runs")

// read returns a file and its modification time. data is nil if there is none. It needs no lock, because a
// file is always replaced as a whole.
func read(path string) (data []byte, modified time.Time, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(path)) // fails if the directory is missing
		return nil, time.Time{}, err
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, time.Time{}, &CorruptError{path, "it is no regular file but " + info.Mode().Type().String(), "name the file itself, or another one", true, false}
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, time.Time{}, nil // the file was removed just now
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil { // the file may have been replaced just now
		return nil, time.Time{}, err
	}
	data, err = io.ReadAll(io.LimitReader(f, maxRecord+1))
	return data, info.ModTime(), err
}

// A draft is the next content of a file.
type draft struct {
	path string
	data []byte
	temp string // the temporary file that already stores it on disk
}

// store writes the draft to the disk, next to its file.
func (d *draft) store() error {
	d.temp = d.path + tempInfix + rand.Text()
	f, err := os.OpenFile(d.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(d.data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// discard removes a draft that was not published.
func (d *draft) discard() { _ = os.Remove(d.temp) }

// reserved reports whether a name may belong to a file that an election keeps next to its own.
func reserved(name string) bool {
	return strings.HasSuffix(name, termSuffix) || strings.HasSuffix(name, lockSuffix) ||
		strings.Contains(name, tempInfix) || strings.Contains(name, corruptInfix)
}

// tempInfix separates the name of a file from the random end of its drafts' names.
const tempInfix = ".tmp-"

// abandonedAfter is the minimum age of a killed process's draft. If a process was stopped and still needs an
// older draft, it notices that the draft is gone, and looks again.
const abandonedAfter = time.Minute

// sweep removes the remains of killed processes: drafts, and lock files that were to replace another.
func (b *Backend) sweep() {
	_ = b.eachTemp(func(path, _ string, e fs.DirEntry) error {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandonedAfter {
			_ = os.Remove(path)
		}
		return nil
	}) // the next write reports any problem with the directory
}

// eachDraft calls do for each draft of the record and the file of terms, of all processes.
func (b *Backend) eachDraft(do func(path string, e fs.DirEntry) error) error {
	return b.eachTemp(func(path, of string, e fs.DirEntry) error {
		if of == lockSuffix {
			return nil
		}
		return do(path, e)
	})
}

// eachTemp calls do for each temporary file of the election. of is the end of the name of the file that it is
// for.
func (b *Backend) eachTemp(do func(path, of string, e fs.DirEntry) error) error {
	dir, name := filepath.Split(b.path)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), name)
		of, _, temp := strings.Cut(rest, tempInfix)
		if !ours || !temp || of != "" && of != termSuffix && of != lockSuffix {
			continue
		}
		if err := do(dir+e.Name(), of, e); err != nil {
			return err
		}
	}
	return err
}
