package monitor

import (
	"iter"
	"slices"

	"github.com/pglatch/pglatch/namespace"
)

// exclusive is the mode that conflicts with both modes; shared conflicts only with exclusive.
const exclusive = "ExclusiveLock"

// A queue lists the sessions of one key that are ahead of each other, and those among them that
// hold or want it in exclusive mode. A Lock's BlockedBy and Blocks are always parts of these two
// lists, so a queue of n costs n and not n².
type queue struct {
	all, exclusive []uint32
}

func (q *queue) add(l *Lock) {
	q.all = append(q.all, l.PID)
	if l.Mode == exclusive {
		q.exclusive = append(q.exclusive, l.PID)
	}
}

// in returns the sessions of the queue that conflict with l.
func (q *queue) in(l *Lock) []uint32 {
	if l.Mode == exclusive {
		return q.all
	}
	return q.exclusive
}

// fillQueues fills BlockedBy and Blocks of each lock. As in pg_blocking_pids (PostgreSQL manual,
// section 9.27), a waiter is blocked by holders whose mode conflicts, and by waiters ahead in the
// queue whose mode conflicts. Asking the server for each waiter would stop its lock manager each
// time. locks is in the order of the keys and their queues.
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
		// l, and the waiters ahead of it, have been removed.
		if !l.Granted {
			waiting.all = waiting.all[1:]
			if l.Mode == exclusive {
				waiting.exclusive = waiting.exclusive[1:]
			}
		}
		l.Blocks = waiting.in(l)
		if repeated { // a session holds the lock in one mode and waits in the other, or is of a prepared transaction
			l.BlockedBy, l.Blocks = others(l.BlockedBy, l.PID), others(l.Blocks, l.PID)
		}
		l.BlockedBy, l.Blocks = closed(l.BlockedBy), closed(l.Blocks)
	}
}

// others returns pids without self and without duplicates.
func others(pids []uint32, self uint32) []uint32 {
	seen := make(map[uint32]bool, len(pids))
	return slices.DeleteFunc(slices.Clone(pids), func(pid uint32) bool {
		again := seen[pid]
		seen[pid] = true
		return again || pid == self
	})
}

// closed returns a list that is not nil and has no spare capacity.
func closed(pids []uint32) []uint32 {
	if pids == nil {
		return []uint32{}
	}
	return slices.Clip(pids)
}

// byKey yields the elements of each key. all is ordered by key.
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
