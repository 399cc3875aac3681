package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/syncdir"
)

// lockSuffix is appended to the record's name for the lock file.
const lockSuffix = ".lock"

// lockRetry is the time between two tries of the lock.
const lockRetry = 2 * time.Millisecond

// change replaces files by the drafts that decide returns for a view of them; decide may return none.
// Everything slow happens before the lock is taken, so that a process is rarely stopped while it has the
// lock. If the files changed meanwhile, change calls decide again. done reports whether the drafts are in
// place. If ctx ends before the lock is held, nothing changes.
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

// commit replaces the files of v by drafts. It returns false if the files have changed since v.
func (b *Backend) commit(ctx context.Context, v view, drafts []*draft) (done bool, err error) {
	for _, d := range drafts {
		defer d.discard()
		if err := d.store(); err != nil {
			return false, err
		}
	}
	held, err := b.enter(ctx)
	if err != nil {
		return false, err
	}
	done, err = b.publish(held, v, drafts)
	err = errors.Join(err, held.Unlock())
	if !done || err != nil {
		return false, err
	}
	return true, syncdir.Sync(filepath.Dir(b.path))
}

// enter takes the lock, if necessary from a process that makes no progress.
func (b *Backend) enter(ctx context.Context) (held *flock.Flock, err error) {
	for ctx.Err() == nil {
		locked, err := b.lock.TryLock()
		switch {
		case err != nil:
			return nil, err
		case locked:
			b.stuck, b.wait = standstill{}, b.wait/2
			return b.lock, nil
		case b.standsStill():
			return b.replaceLock()
		}
		_ = pause.For(ctx, lockRetry)
	}
	return nil, fmt.Errorf("another process has the lock, or the machine is busy: %w", context.Cause(ctx))
}

// publish runs under the lock, which serializes all changes. The lock is on a file of its own that no change
// renames. A lock on the record itself would stay with the inode that a rename replaced.
func (b *Backend) publish(held *flock.Flock, v view, drafts []*draft) (done bool, err error) {
	if ours, err := b.isOurs(held, drafts); !ours || err != nil {
		return false, err
	}
	now, err := b.look()
	if err != nil || now.state != v.state || now.free() != v.free() {
		return false, err
	}
	for _, d := range drafts {
		if v.damage != nil && d.path == b.path {
			err = b.keepCorrupt()
		}
		if err == nil {
			err = b.rename(d.temp, d.path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // another process removed it while this one was stopped, or the directory is gone; the next look tells which
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
