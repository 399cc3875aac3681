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
	// trialAge is for how long a transaction that was stored is proof enough that the next
	// can be.
	trialAge = time.Second
	// enoughSpace is what a disk that was full has to have again: that the time can be
	// stored does not mean that a grant can, which takes some pages more.
	enoughSpace = 256 << 10
)

// Health implements [lease.HealthReporter]. It returns what a change would get now: if
// none was stored within the last second, or the last failed, it stores the time, as a
// change does. So it finds a disk that is full, a file that cannot be written, and a
// store that has stopped (lease.ErrBroken), and it waits for a disk that is silent
// until ctx ends.
func (s *Store) Health(ctx context.Context) error {
	return s.do(ctx, func(t *txn) error {
		t.seen = t.seen || t.now.Sub(t.w.proven) >= trialAge
		return t.w.stillFull()
	})
}

// stillFull returns an error if the disk was full and has not much space now.
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

// note remembers how a transaction ended that failed.
func (w *writer) note(err error) {
	w.proven = time.Time{}
	w.full = w.full || errors.Is(err, ErrFull)
}
