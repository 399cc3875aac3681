package etcd

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

const (
	sweepKeys = 1000   // that are read at a time
	sweepMost = 20_000 // that are read in one Sweep
	sweepSize = 32     // names that are changed in one transaction: etcd allows 128 operations
)

// A round is one pass of this Store's sweeps through all names: a sweep continues where the last
// one stopped.
type round struct {
	mu    sync.Mutex
	after string
	held  int // that this round has found
	last  int // that the last round had found
}

// A swept name is one that a sweep changes.
type swept struct {
	named
	rules.Sweeping
}

// Sweep implements [lease.Store]. Leases end without it: it counts leases and forgets names.
// Each call reads some thousands of names, and the next call continues from there. Held is the
// count of the last complete pass through all names.
func (s *Store) Sweep(ctx context.Context, r lease.SweepRequest) (total lease.SweepResult, err error) {
	if err := r.Validate(); err != nil {
		return total, err
	}
	s.round.mu.Lock()
	defer s.round.mu.Unlock()
	retention, left := cmp.Or(r.Retention, lease.DefaultRetention), cmp.Or(r.Limit, lease.DefaultSweepLimit)
	end := false
	for read := 0; !end && left > 0 && read < sweepMost; read += sweepKeys {
		err := s.again(ctx, func(ctx context.Context) (_ bool, err error) {
			var n int
			n, end, err = s.sweepPage(ctx, retention, left, &total)
			left -= n
			return true, err
		})
		if err != nil {
			return total, err
		}
	}
	total.Held = s.round.last
	total.More = !end || left == 0
	return total, nil
}

// sweepPage decides about some names, and returns how many it changed and whether they were the
// last ones.
func (s *Store) sweepPage(ctx context.Context, retention time.Duration, limit int, total *lease.SweepResult) (n int, end bool, err error) {
	after := s.round.after
	names, next, err := s.page(ctx, after, "", sweepKeys)
	if err != nil {
		return 0, false, err
	}
	wall := s.config.Wall()
	var todo []swept
	found := 0
	for _, name := range names {
		if name.row.Token != 0 {
			sweeping := rules.Sweep(name.row, name.now(wall), retention)
			if sweeping.Changed || sweeping.Drop {
				if len(todo) == limit {
					next = after
					break
				}
				todo = append(todo, swept{name, sweeping})
			}
			if name.held() {
				found++
			}
		}
		after = name.name
	}
	for chunk := range slices.Chunk(todo, sweepSize) {
		if err := s.change(ctx, chunk, total); err != nil {
			return n, false, err
		}
		n += len(chunk)
	}
	s.round.held += found
	s.round.after = next
	if next == "" {
		s.round.last, s.round.held = s.round.held, 0
	}
	return n, next == "", nil
}

// change stores a sweep's decisions. If a name changed since, it is left to the next sweep.
func (s *Store) change(ctx context.Context, names []swept, total *lease.SweepResult) error {
	e, err := s.era(ctx)
	if err != nil {
		return err
	}
	var conditions []clientv3.Cmp
	var operations []clientv3.Op
	for _, n := range names {
		key := s.key(n.name, recordKey)
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", n.revision))
		if n.Drop {
			operations = append(operations, clientv3.OpDelete(key, clientv3.WithRange(s.config.Prefix+n.name+behind)))
			continue
		}
		text, err := encode(n.Row, e.Base, n.Row.Token)
		if err != nil {
			return err
		}
		operations = append(operations, clientv3.OpPut(key, text))
	}
	r, err := s.client.Txn(ctx).If(conditions...).Then(operations...).Commit()
	switch {
	case err != nil:
		return failed(ctx, err)
	case r.Succeeded:
		for _, n := range names {
			total.Expired += n.Expired
			if n.Drop {
				total.Removed++
			}
		}
	case len(names) > 1:
		for i := range names {
			if err := s.change(ctx, names[i:i+1], total); err != nil {
				return err
			}
		}
	}
	return nil
}
