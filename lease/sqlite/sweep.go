package sqlite

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// sweepSize is how many names a sweep decides in one transaction. An acquire that arrives
// meanwhile waits for it for some milliseconds.
const sweepSize = 32

// Sweep implements [lease.Store]. It reads some due names without the writer, and decides them in a
// transaction that other requests share. It repeats that until nothing is due, SweepRequest.Limit
// names were read, or 10 ms have passed. Last, it counts the held leases. If a transaction fails,
// the result has the counts of the transactions before it.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	return rules.Transactions(r, sweepSize, func(retention time.Duration, limit int, total *lease.SweepResult) (int, error) {
		return s.sweepSome(ctx, retention, limit, total)
	}, func() (int, error) {
		var held int
		err := s.do(ctx, func(t *txn) error {
			held = t.w.tally.held(t.now)
			return nil
		})
		if err != nil { // if ctx ended, the writer may still write to held
			return 0, err
		}
		return held, nil
	})
}

// sweepSome decides up to limit names in one transaction, adds its counts to total, and returns how
// many were due.
func (s *Store) sweepSome(ctx context.Context, retention time.Duration, limit int, total *lease.SweepResult) (int, error) {
	due, err := s.reader.due(ctx, s.writer.clock.now(), retention, limit)
	if err != nil {
		return 0, s.readError(ctx, err)
	}
	if len(due) == 0 {
		return 0, nil
	}
	var part lease.SweepResult
	err = s.do(ctx, func(t *txn) error {
		for _, d := range due {
			if err := t.sweep(d, retention, &part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	total.Expired += part.Expired
	total.Removed += part.Removed
	return len(due), nil
}

// sweep decides about one name, which may have changed since it was found.
func (t *txn) sweep(d dueName, retention time.Duration, result *lease.SweepResult) error {
	e, err := t.known(d)
	if e == nil {
		return err
	}
	s := rules.Sweep(e.row, t.now, retention)
	result.Expired += s.Expired
	if s.Drop {
		result.Removed++
		t.drop(s.Row)
		return nil
	}
	t.put(s.Row, placeAfterSweep(&s.Row))
	return nil
}
