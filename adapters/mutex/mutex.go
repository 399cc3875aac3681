package mutex

import (
	"context"
	"fmt"
	"sync"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// Conditions, for errors.Is, under the names that redsync uses. The errors themselves are those of
// package advisory, with details.
var (
	// ErrTaken: another holder has the lock. The error is a *advisory.HeldError or
	// *advisory.TimeoutError, which name the holder. redsync's *ErrTaken.
	ErrTaken = advisory.ErrHeld
	// ErrFailed: the lock was not granted in time. redsync's ErrFailed.
	ErrFailed = advisory.ErrTimeout
	// ErrExpired: the lock ended before it was unlocked; the error is a *advisory.LostError.
	// redsync's ErrLockAlreadyExpired and ErrExtendFailed.
	ErrExpired = advisory.ErrLost
	// ErrNotLocked: the Mutex is not locked.
	ErrNotLocked = advisory.ErrReleased
)

// A Mutex is one lock that can be locked and unlocked repeatedly, like a redsync.Mutex. It is safe
// for concurrent use: goroutines that share one exclude each other too.
type Mutex struct {
	locker *advisory.Locker
	key    namespace.Key

	mu   sync.Mutex
	lock *advisory.Lock // nil = not locked
}

// New returns the Mutex of a key, unlocked. locker sets how long LockContext waits, and whether the
// lock is shared: see advisory.Locker.With.
func New(locker *advisory.Locker, key namespace.Key) *Mutex { return &Mutex{locker: locker, key: key} }

// Name returns the text of the key.
func (m *Mutex) Name() string { return m.key.String() }

// LockContext waits for the lock, for at most the Locker's Wait. It waits in the order of arrival
// instead of polling. ctx bounds only the wait: if it ends later, the lock stays held. On failure
// nothing is locked. The errors are those of advisory.Locker.Acquire. If this Mutex's lock was
// lost and is not unlocked yet, the error matches ErrExpired.
func (m *Mutex) LockContext(ctx context.Context) error { return m.keep(m.locker.Acquire(ctx, m.key)) }

// TryLockContext locks if the lock is free now. The errors are those of advisory.Locker.TryAcquire.
// If the lock is held, the error matches ErrTaken.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	return m.keep(m.locker.TryAcquire(ctx, m.key))
}

func (m *Mutex) keep(lock *advisory.Lock, err error) error {
	if err != nil {
		return err
	}
	m.mu.Lock()
	locked := m.lock != nil
	if !locked {
		m.lock = lock
	}
	m.mu.Unlock()
	if locked { // its holder would unlock this caller's lock
		_ = lock.Release()
		return fmt.Errorf("mutex: %v was lost, and is not unlocked yet: %w", m.key, ErrExpired)
	}
	return nil
}

// UnlockContext unlocks, whether ctx has ended or not, and returns true and nil. If the lock had
// been lost, it returns false and an error that matches ErrExpired: another holder may have
// worked meanwhile. If the Mutex is not locked, the error matches ErrNotLocked.
func (m *Mutex) UnlockContext(context.Context) (bool, error) {
	m.mu.Lock()
	lock := m.lock
	m.lock = nil
	m.mu.Unlock()
	if lock == nil {
		return false, ErrNotLocked
	}
	if err := lock.Release(); err != nil {
		return false, err
	}
	return true, nil
}

// ExtendContext reports whether the lock is still held, with the same errors as UnlockContext.
// There is nothing to extend: the lock lasts as long as its session, which the Locker keeps alive.
// It sends no query.
func (m *Mutex) ExtendContext(context.Context) (bool, error) {
	ctx := m.Context()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return true, nil
}

// Context returns a context for work under the lock. It ends when the lock is lost or unlocked: see
// advisory.Lock.Context. If the Mutex is not locked, the context has already ended, with
// ErrNotLocked as its cause.
func (m *Mutex) Context() context.Context {
	m.mu.Lock()
	lock := m.lock
	m.mu.Unlock()
	if lock == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrNotLocked)
		return ctx
	}
	return lock.Context()
}
