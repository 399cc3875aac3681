package mutex

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// A ReleaseFunc releases a lock, once. It is never nil, and does nothing if there is no lock. It
// does not report an earlier loss of the lock; the context and LockAndDo report that.
type ReleaseFunc func()

// A Locker locks keys that are named by text, like Gitea's globallock.Locker. In addition, its
// methods return the context of the lock.
type Locker struct {
	locker *advisory.Locker
	names  namespace.Namespace
}

// NewLocker returns a Locker whose keys are the texts of a namespace. locker sets how long Lock
// waits. Gitea's Locker waits until its context ends, like advisory.Options{Wait:
// advisory.NoTimeout}.
func NewLocker(locker *advisory.Locker, names namespace.Namespace) *Locker {
	return &Locker{locker: locker, names: names}
}

// Lock waits for the lock on key, for at most the Locker's Wait. The returned context descends from
// ctx, and ends when the lock is lost or released. On failure, it is ctx, and the errors are those
// of advisory.Locker.Acquire. The caller must call the ReleaseFunc.
func (l *Locker) Lock(ctx context.Context, key string) (context.Context, ReleaseFunc, error) {
	return l.take(ctx, key, l.locker.Acquire)
}

// TryLock is Lock without a wait: if the lock is held elsewhere, it returns false and no error.
func (l *Locker) TryLock(ctx context.Context, key string) (bool, context.Context, ReleaseFunc, error) {
	work, release, err := l.take(ctx, key, l.locker.TryAcquire)
	if errors.Is(err, advisory.ErrHeld) {
		return false, work, release, nil
	}
	return err == nil, work, release, err
}

func (l *Locker) take(ctx context.Context, key string, acquire func(context.Context, namespace.Key) (*advisory.Lock, error)) (context.Context, ReleaseFunc, error) {
	k, err := l.names.Text(key)
	if err != nil {
		return ctx, func() {}, err
	}
	lock, err := acquire(ctx, k)
	if err != nil {
		return ctx, func() {}, err
	}
	return lock.Context(), func() { _ = lock.Release() }, nil
}

// LockAndDo runs f under the lock on key with advisory.Locker.Do, and returns its errors: a
// *advisory.LostError if the lock was lost before f returned.
func (l *Locker) LockAndDo(ctx context.Context, key string, f func(ctx context.Context) error) error {
	k, err := l.names.Text(key)
	if err != nil {
		return err
	}
	return l.locker.Do(ctx, k, f)
}

// TryLockAndDo is LockAndDo without a wait, with advisory.Locker.DoOrSkip. It returns whether f
// ran.
func (l *Locker) TryLockAndDo(ctx context.Context, key string, f func(ctx context.Context) error) (bool, error) {
	k, err := l.names.Text(key)
	if err != nil {
		return false, err
	}
	return l.locker.DoOrSkip(ctx, k, f)
}
