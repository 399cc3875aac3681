package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// lockSuffix is what the name of the lock's file has after that of the record.
const lockSuffix = ".lock"

// lockRetry is the time between two tries of the lock.
const lockRetry = 2 * time.Millisecond

// change changes files as decide says, which gets a view of them and may return no
// drafts. Everything slow happens before the lock is taken, so that a process is
// rarely stopped while it has the lock: if the files changed meanwhile, decide is
// asked again. done reports whether the drafts are in place. If ctx ends before the
// lock is held, nothing is done.
func (b *Backend) change(ctx context.Context, op string, decide func(v view) ([]*draft, error)) (done bool, err error) {
	for {
		if ctx.Err() != nil {
			return false, failed(op, b.path, context.Cause(ctx))
		}
		v, err := b.look()
		if err != nil {
			return false, failed(op, b.path, err)
		}
		drafts, err := decide(v)
		if err != nil || len(drafts) == 0 {
			return false, failed(op, b.path, err)
		}
		if done, err = b.commit(ctx, v, drafts); done || err != nil {
			return done, failed(op, b.path, err)
		}
	}
}

// commit puts drafts in the place of what v is a view of. It returns false if
// that has changed.
func (b *Backend) commit(ctx context.Context, v view, drafts []*draft) (done bool, err error) {
	for _, d := range drafts {
		defer d.discard()
		if err := d.store(); err != nil {
			return false, err
		}
	}
	held, err := b.lock.TryLockContext(ctx, lockRetry)
	if !held && ctx.Err() != nil {
		err = fmt.Errorf("another process has the lock, or the machine is busy: %w", context.Cause(ctx))
	}
	if err != nil {
		return false, err
	}
	done, err = b.publish(v, drafts)
	err = errors.Join(err, b.lock.Unlock())
	if !done || err != nil {
		return false, err
	}
	return true, syncDir(filepath.Dir(b.path))
}

// publish is what happens under the lock. The lock serialises all changes. It is on a
// file of its own that is never renamed: a lock on the record itself would stay with
// the inode that a rename replaced.
func (b *Backend) publish(v view, drafts []*draft) (done bool, err error) {
	now, err := b.look()
	if err != nil || now.state != v.state || now.free() != v.free() {
		return false, err
	}
	if err := b.stillLocked(); err != nil {
		return false, err
	}
	for _, d := range drafts {
		if v.damage != nil && d.path == b.path {
			err = b.putAside()
		}
		if err == nil {
			err = d.publish()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // another swept it while this process was stopped, or the directory is gone, as the next look tells
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// stillLocked checks that the lock is the one that others would take.
func (b *Backend) stillLocked() error {
	ours, err := b.lock.Stat()
	if err != nil {
		return err
	}
	theirs, err := os.Stat(b.lock.Path())
	if err != nil || !os.SameFile(ours, theirs) {
		return errUnlocked
	}
	return nil
}
