package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// sweepSize is how many names a sweep decides in one request, so that others do not
// wait for all of it.
const sweepSize = 500

// Sweep implements [lease.Store]. It looks for names without the writer, decides
// them in transactions of some hundred, and counts at last what is held. If one of
// them fails, the result tells what the ones before did.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	var total lease.SweepResult
	if err := r.Validate(); err != nil {
		return total, err
	}
	retention := cmp.Or(r.Retention, lease.DefaultRetention)
	names, err := s.reader.due(ctx, s.clock.now(), retention, cmp.Or(r.Limit, lease.DefaultSweepLimit))
	if err != nil {
		return total, s.readError(ctx, err)
	}
	for chunk := range slices.Chunk(names, sweepSize) {
		var part lease.SweepResult
		err := s.do(ctx, func(t *txn) error {
			for _, name := range chunk {
				if err := t.sweep(name, r, &part); err != nil {
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
	if total.Held, err = s.reader.held(ctx, s.clock.now()); err != nil {
		return total, s.readError(ctx, err)
	}
	return total, nil
}

// sweep decides on one name, which may have changed since it was found.
func (t *txn) sweep(name string, r lease.SweepRequest, result *lease.SweepResult) error {
	row, err := t.row(name)
	if err != nil {
		return err
	}
	s := ledger.Sweep(row, t.now, cmp.Or(r.Retention, lease.DefaultRetention))
	result.Expired += s.Expired
	switch {
	case s.Drop:
		result.Removed++
		t.drop(s.Row)
	case s.Changed:
		t.put(s.Row)
	}
	return nil
}
