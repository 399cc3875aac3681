package file

import (
	"context"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

// SetClock gives b another clock.
func (b *Backend) SetClock(id string, now func() time.Duration) {
	b.now = func() moment { return moment{id, now()} }
}

// ClockID names the clock that the processes of this machine share.
func ClockID() string { return newClock()().clock }

// LockOn makes b take its lock on another file.
func (b *Backend) LockOn(path string) {
	b.lock = flock.New(path)
}

// SetPatience sets how long b waits for a lock before it takes it.
func (b *Backend) SetPatience(d time.Duration) { b.patience = d }

// BeforeRename makes b call do under the lock, before each change of a file.
func (b *Backend) BeforeRename(do func(from, to string)) {
	rename := b.rename
	b.rename = func(from, to string) error {
		do(from, to)
		return rename(from, to)
	}
}

// ReplaceLock takes b's lock from whoever has it, and does no more, like a process
// that is killed then.
func (b *Backend) ReplaceLock() error {
	held, err := b.replaceLock()
	if err == nil {
		err = held.Unlock()
	}
	return err
}

// Lock takes b's lock until the returned function is called.
func (b *Backend) Lock(ctx context.Context) (unlock func() error, err error) {
	_, err = b.lock.TryLockContext(ctx, lockRetry)
	return b.lock.Unlock, err
}

// Decode reads a record and returns it as it would be written.
func Decode(data []byte) (text []byte, err error) {
	r, damage := decode("record", data)
	if damage != nil {
		return nil, damage
	}
	return r.encode()
}

// DecodeTermFile reads a file of terms and returns it as it would be written.
func DecodeTermFile(data []byte) (text []byte, err error) {
	l, err := decodeTermFile(data)
	if err != nil {
		return nil, err
	}
	return l.encode(), nil
}

// MaxRecord is the most bytes of a file.
const MaxRecord = maxRecord

// TryLock takes b's lock if it is free.
func (b *Backend) TryLock() bool {
	ok, _ := b.lock.TryLock()
	return ok
}

// Unlock gives it back.
func (b *Backend) Unlock() { _ = b.lock.Unlock() }

func TestTheRecordOfAnElectionIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "record", frozen.JSON[record](t, "record"))
}
