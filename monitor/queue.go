package monitor

import (
	"iter"
	"slices"

	"github.com/pglatch/pglatch/namespace"
)

// exclusive is the mode that conflicts with both; the other, shared, does so with it alone.
const exclusive = "ExclusiveLock"

// A queue is the sessions of one key that stand before each other, and those among them
// that want it, or have it, in exclusive mode: parts of these two lists are all that a
// Lock's BlockedBy and Blocks can be, so that a queue of n costs n and not n².
type queue struct {
	all, exclusive []uint32
}

func (q *queue) add(l *Lock) {
	q.all = append(q.all, l.PID)
	if l.Mode == exclusive {
		q.exclusive = append(q.exclusive, l.PID)
	}
}

// in returns who of the queue conflicts with l.
func (q *queue) in(l *Lock) []uint32 {
	if l.Mode == exclusive {
		return q.all
	}
	return q.exclusive
}

// fillQueues says of each lock whom it waits for and who waits for it. As in
// pg_blocking_pids (PostgreSQL manual, section 9.27), these are the holders whose mode
// conflicts, and the waiters ahead in the queue whose mode does; which is asked of the
// server for each waiter it stops the lock manager each time. locks is in the order of the keys and
// their queues.
func fillQueues(locks []Lock) {
	for group := range byKey(locks, func(l Lock) namespace.Tag { return l.Tag }) {
		fillQueue(group)
	}
}

// fillQueue does it for the locks of one key.
func fillQueue(group []Lock) {
	var before, waiting queue
	seen := make(map[uint32]bool, len(group))
	repeated := false
	for i := range group {
		l := &group[i]
		repeated = repeated || seen[l.PID]
		seen[l.PID] = true
		if !l.Granted {
			l.BlockedBy = before.in(l)
			waiting.add(l)
		}
		before.add(l)
	}
	for i := range group {
		l := &group[i]
		// Those ahead of l, and l, have been taken off.
		if !l.Granted {
			waiting.all = waiting.all[1:]
			if l.Mode == exclusive {
				waiting.exclusive = waiting.exclusive[1:]
			}
		}
		l.Blocks = waiting.in(l)
		if repeated { // it holds the lock in one mode and waits in the other, or is of a prepared transaction
			l.BlockedBy, l.Blocks = others(l.BlockedBy, l.PID), others(l.Blocks, l.PID)
		}
		l.BlockedBy, l.Blocks = closed(l.BlockedBy), closed(l.Blocks)
	}
}

// others are those of pids that are not self, each once.
func others(pids []uint32, self uint32) []uint32 {
	seen := make(map[uint32]bool, len(pids))
	return slices.DeleteFunc(slices.Clone(pids), func(pid uint32) bool {
		again := seen[pid]
		seen[pid] = true
		return again || pid == self
	})
}

// closed is a list that is not nil and shares no room behind its end.
func closed(pids []uint32) []uint32 {
	if pids == nil {
		return []uint32{}
	}
	return slices.Clip(pids)
}

// byKey yields what belongs to each key. all is ordered by key.
func byKey[T any](all []T, tag func(T) namespace.Tag) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for rest := all; len(rest) > 0; {
			n := 1
			for n < len(rest) && tag(rest[n]) == tag(rest[0]) {
				n++
			}
			if !yield(rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}
