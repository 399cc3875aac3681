package sqlite

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/lease"
)

// maxWaiting bounds the waiting requests, maxBatch those of one transaction.
const (
	maxWaiting = 1 << 16
	maxBatch   = 1 << 10
)

// A request is decided inside a transaction, by the writer, and answered after its commit.
type request struct {
	ctx    context.Context
	decide func(*txn) error
	err    error
	done   chan struct{} // closed when err and decide's results can be read
}

func (r *request) answer(err error) {
	r.err = err
	close(r.done)
}

// add accepts r, or returns why not. Each accepted request is answered. Requests that arrive at
// the same time can exceed maxWaiting.
func (s *Store) add(r *request) error {
	if s.requests.Length() >= maxWaiting {
		return &lease.BusyError{Retry: retryBusy, Cause: errCrowded}
	}
	if !s.requests.Add(r) {
		return ErrClosed
	}
	return nil
}

// do makes the writer decide a request, and waits until that is committed.
func (s *Store) do(ctx context.Context, decide func(*txn) error) error {
	r := &request{ctx: ctx, decide: decide, done: make(chan struct{})}
	if err := s.add(r); err != nil {
		if errors.Is(err, lease.ErrBusy) {
			s.writer.counters.busy.Add(1)
		}
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return waitError(ctx)
	}
}
