package sqlite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// sweepSize is how many names a sweep decides in one request, so that others do not
// wait for all of it.
const sweepSize = 500

// Sweep implements [lease.Store]. It reads which names are due without the writer,
// decides them in transactions of some hundred, and asks at last what is held. If one of
// them fails, the result tells what the ones before did. SweepRequest.Limit bounds the
// names that it looks at.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	var total lease.SweepResult
	if err := r.Validate(); err != nil {
		return total, err
	}
	r.Retention = cmp.Or(r.Retention, lease.DefaultRetention)
	due, err := s.reader.due(ctx, s.clock.now(), r.Retention, cmp.Or(r.Limit, lease.DefaultSweepLimit))
	if err != nil {
		return total, s.readError(ctx, err)
	}
	for chunk := range slices.Chunk(due, sweepSize) {
		var part lease.SweepResult
		err := s.do(ctx, func(t *txn) error {
			for _, d := range chunk {
				if err := t.sweep(d, r.Retention, &part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		total.Expired += part.Expired
		total.Removed += part.Removed
	}
	err = s.do(ctx, func(t *txn) error {
		total.Held = t.w.tally.held(t.now)
		return nil
	})
	return total, err
}

// sweep decides on one name, which may have changed since it was found.
func (t *txn) sweep(d dueName, retention time.Duration, result *lease.SweepResult) error {
	e, err := t.known(d)
	if e == nil {
		return err
	}
	s := ledger.Sweep(e.row, t.now, retention)
	result.Expired += s.Expired
	if s.Drop {
		result.Removed++
		t.drop(s.Row)
		return nil
	}
	t.put(s.Row, placeAfterSweep(&s.Row))
	return nil
}
