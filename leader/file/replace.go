package file

import (
	crand "crypto/rand"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/gofrs/flock"
)

// A process that is stopped, or gets no processor, while it has the lock keeps others
// out. After lockPatience one of them puts a file of its own, which it has locked, in the
// place of the lock's, and removes the drafts of all others. What the process that had the lock
// does when it goes on is to rename its drafts, and these are gone: it changes
// nothing, and begins anew. In detail,
//
//   - a process stores its drafts, takes the lock, and looks whether the lock's file is
//     the one that it has locked. If it was replaced before that, it changes nothing;
//   - if it is replaced after, its drafts are there by then, and are removed. What it
//     renamed before, whoever replaced the lock sees, because it looks after that;
//   - a lock's file that was put in the place of another is not empty until the drafts
//     have been removed. Who finds it so, because its owner was killed or stopped as well,
//     removes them first.
//
// So nothing is wrong if a lock is replaced whose holder was only slow: it has
// to begin anew. But on a machine so busy that all are slow nobody would get anywhere if
// they all went on replacing each other's locks, so a process waits twice as long after
// each replacement, up to mostPatience, and half as long after each lock that it got
// in order; and up to twice as long as that at random, so that not all come at once.
const (
	lockPatience = 100 * time.Millisecond
	mostPatience = 2 * time.Second
)

// A standstill is until when the lock of somebody else is respected while the record
// does not change.
type standstill struct {
	state string
	until time.Time // zero = the lock was free, or another's for the first time
}

// standsStill reports whether the lock has been another's for long enough, at each try,
// while nothing changed. It is called after each try that failed.
func (b *Backend) standsStill() bool {
	if !b.stuck.until.IsZero() && time.Now().Before(b.stuck.until) {
		return false
	}
	data, modified, err := read(b.path)
	if state := stateOf(data, modified); err != nil || b.stuck.until.IsZero() || state != b.stuck.state {
		wait := max(b.wait, b.patience)
		b.stuck = standstill{state, time.Now().Add(wait + rand.N(wait+1))}
		return false
	}
	return true
}

// replaceLock takes the lock from whoever has it.
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

// isOurs reports whether the lock that is held is the one that others would take.
// Then nobody else can publish anything. The drafts are excepted from what it removes.
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

// fence removes all drafts but those, so that they cannot be published any more.
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
