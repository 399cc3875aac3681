package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pglatch/pglatch/lease"
)

const (
	// trialAge is the time for which a stored transaction counts as proof that the next one can be
	// stored.
	trialAge = time.Second
	// enoughSpace is the space that a disk needs after it was full. Even if the time can be stored,
	// a grant may fail, because it takes some more pages.
	enoughSpace = 256 << 10
)

// Health implements [lease.HealthReporter]. It returns the error that a change would return now. If
// no change was stored within the last second, or the last change failed, Health stores the time,
// as a change does. So it detects a full disk, a file that cannot be written, and a store that has
// stopped (lease.ErrBroken). If the disk does not answer, Health waits until ctx ends.
func (s *Store) Health(ctx context.Context) error {
	return s.do(ctx, func(t *txn) error {
		t.seen = t.seen || t.now.Sub(t.w.proven) >= trialAge
		return t.w.stillFull()
	})
}

// stillFull returns an error if the disk was full and still has little space.
func (w *writer) stillFull() error {
	if !w.full {
		return nil
	}
	n, err := space(filepath.Dir(w.path))
	if w.full = err == nil && n < enoughSpace; !w.full {
		return nil
	}
	err = &FileError{Op: "health", Path: w.path, Condition: ErrFull, Cause: fmt.Errorf("%d bytes are left", n)}
	return &lease.BusyError{Retry: retryFull, Cause: err}
}

// note records the error of a failed transaction.
func (w *writer) note(err error) {
	w.proven = time.Time{}
	w.full = w.full || errors.Is(err, ErrFull)
}
