package file

import (
	crand "crypto/rand"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/pglatch/pglatch/internal/pause"
)

// A process that is stopped, or gets no processor, while it has the lock keeps others out. After lockPatience
// another process replaces the lock file with its own file, which it has locked, and removes the drafts of
// all others. When the first process resumes, it tries to rename its drafts, which are gone. So it changes
// nothing, and begins anew. In detail,
//
//   - A process stores its drafts, takes the lock, and checks that the lock file is the one that it has
//     locked. If the lock file was replaced before that check, the process changes nothing.
//   - If the lock file is replaced after the check, the drafts already exist, and are removed. The replacing
//     process sees any earlier renames, because it looks after the removal.
//   - A replacing lock file is not empty until the drafts have been removed. Its owner may be killed or
//     stopped as well. The next process that finds it not empty removes the drafts first.
//
// So it does no harm to replace the lock of a process that was only slow: that process begins anew. But on a
// machine so busy that all are slow, processes could replace each other's locks again and again without
// progress. So a process doubles its wait after each replacement, up to mostPatience, and halves it after
// each lock that it got in order. It adds a random time of up to the same length, so that not all come at
// once.
const (
	lockPatience = 100 * time.Millisecond
	mostPatience = 2 * time.Second
)

// A standstill records until when another process's lock is respected while the record does not change.
type standstill struct {
	state string
	until time.Time // zero = the lock was free, or another process had it for the first time
}

// standsStill reports whether other processes had the lock for long enough, at each try, while nothing
// changed. It is called after each failed try.
func (b *Backend) standsStill() bool {
	if !b.stuck.until.IsZero() && time.Now().Before(b.stuck.until) {
		return false
	}
	data, modified, err := read(b.path)
	if state := stateOf(data, modified); err != nil || b.stuck.until.IsZero() || state != b.stuck.state {
		wait := max(b.wait, b.patience)
		b.stuck = standstill{state, time.Now().Add(pause.AtMost(2 * wait))}
		return false
	}
	return true
}

// replaceLock takes the lock from the process that has it.
func (b *Backend) replaceLock() (held *flock.Flock, err error) {
	b.stuck = standstill{}
	b.wait = min(2*max(b.wait, b.patience), mostPatience)
	temp := b.lock.Path() + tempInfix + crand.Text()
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	if err := os.WriteFile(temp, []byte("drafts are to be removed\n"), 0o600); err != nil {
		return nil, err
	}
	held = flock.New(temp)
	if locked, err := held.TryLock(); !locked || err != nil {
		return nil, errors.Join(errUnlocked, err)
	}
	if err := os.Rename(temp, b.lock.Path()); err != nil {
		return nil, errors.Join(err, held.Unlock())
	}
	return held, nil
}

// isOurs reports whether the held lock is the one that others would take. Then no other process can publish
// anything. If isOurs removes drafts, it excepts the given ones.
func (b *Backend) isOurs(held *flock.Flock, drafts []*draft) (bool, error) {
	ours, err := held.Stat()
	if err != nil {
		return false, err
	}
	f, err := os.OpenFile(b.lock.Path(), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, errUnlocked
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	theirs, err := f.Stat()
	switch {
	case err != nil:
		return false, err
	case !os.SameFile(ours, theirs):
		return false, nil // this process was stopped or slow
	case theirs.Size() == 0:
		return true, nil
	}
	if err := b.fence(drafts); err != nil {
		return false, err
	}
	return true, f.Truncate(0)
}

// fence removes all drafts except the given ones, so that they can no longer be published.
func (b *Backend) fence(but []*draft) error {
	return b.eachDraft(func(path string, _ fs.DirEntry) error {
		if slices.ContainsFunc(but, func(d *draft) bool { return d.temp == path }) {
			return nil
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
