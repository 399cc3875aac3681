//go:build integration

package shards

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

// An operation is one thing that an owner does to the outside world for a shard.
type operation struct {
	node, pid, shard int
	term             leader.Term
	looked           time.Time // at its context, the last time before
	at               time.Time // when it arrived, by the kernel's clock
}

const operationSize = 5 * 8

func (op operation) encode() []byte {
	b := make([]byte, 0, operationSize)
	for _, n := range []uint64{uint64(op.node), uint64(op.pid), uint64(op.shard), op.term.Uint64(), uint64(op.looked.UnixNano())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func decodeOperation(b []byte, at time.Time) operation {
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return operation{
		node: int(number(0)), pid: int(number(1)), shard: int(number(2)), term: driver.TermOf(number(3)), at: at,
		looked: time.Unix(0, int64(number(4))),
	}
}

// A tenure is an ownership as the observer saw it.
type tenure struct {
	term      leader.Term
	node, pid int
	began     time.Time     // its first operation
	last      time.Time     // its last, so far
	gap       time.Duration // since the last operation of the one before
	late      int           // operations after the first of a later term
	after     string        // the fault during which it began
}

// A lateOperation came after the first one of a later term.
type lateOperation struct {
	operation
	successor tenure
	nth       int // of its tenure, from 1
}

func (l lateOperation) by() time.Duration { return l.at.Sub(l.successor.began) }

func (l lateOperation) String() string {
	return fmt.Sprintf("on shard %d by node %d in term %v, %v after the first operation of node %d in term %v, which began when: %s; it had looked at its context %v before",
		l.shard, l.node, l.term, l.by(), l.successor.node, l.successor.term, l.successor.after, l.at.Sub(l.looked))
}

// An observer receives the operations of all nodes in the order in which they happen.
type observer struct {
	queue *electiontest.Queue

	mu         sync.Mutex
	during     string
	shards     map[int][]tenure // by term
	late       []lateOperation
	faulty     []string // what must not be, whatever happens
	operations int
}

func newObserver(t *testing.T) *observer {
	t.Helper()
	o := &observer{shards: make(map[int][]tenure)}
	o.queue = electiontest.NewQueue(t, operationSize, func(b []byte, at time.Time) { o.see(decodeOperation(b, at)) })
	return o
}

// see checks one operation.
func (o *observer) see(op operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.operations++
	all := o.shards[op.shard]
	i, known := slices.BinarySearchFunc(all, op.term, func(r tenure, t leader.Term) int { return r.term.Compare(t) })
	if !known {
		r := tenure{term: op.term, node: op.node, pid: op.pid, began: op.at, after: o.during}
		if i > 0 {
			r.gap = op.at.Sub(all[i-1].last)
		}
		all = slices.Insert(all, i, r)
		o.shards[op.shard] = all
	}
	r := &all[i]
	r.last = op.at
	if r.node != op.node || r.pid != op.pid {
		o.faulty = append(o.faulty, fmt.Sprintf("term %v of shard %d has two owners: node %d (process %d) and node %d (process %d)",
			op.term, op.shard, r.node, r.pid, op.node, op.pid))
	}
	if i+1 < len(all) {
		first := slices.MinFunc(all[i+1:], func(x, y tenure) int { return x.began.Compare(y.began) })
		r.late++
		o.late = append(o.late, lateOperation{op, first, r.late})
	}
}

// begin says what happens now, and returns the latest tenure of each shard.
func (o *observer) begin(fault string) map[int]tenure {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.during = fault
	return o.latestLocked()
}

func (o *observer) latest() map[int]tenure {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latestLocked()
}

func (o *observer) latestLocked() map[int]tenure {
	latest := make(map[int]tenure, len(o.shards))
	for shard, all := range o.shards {
		latest[shard] = all[len(all)-1]
	}
	return latest
}

// since returns the tenures that began after a moment, by shard.
func (o *observer) since(moment time.Time) map[int][]tenure {
	o.mu.Lock()
	defer o.mu.Unlock()
	began := make(map[int][]tenure)
	for shard, all := range o.shards {
		for _, r := range all {
			if r.began.After(moment) {
				began[shard] = append(began[shard], r)
			}
		}
	}
	return began
}

// drain takes what was late, and what is wrong in any case.
func (o *observer) drain() (operations []lateOperation, faulty []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	operations, faulty = o.late, o.faulty
	o.late, o.faulty = nil, nil
	return operations, faulty
}

func (o *observer) total() (tenures, operations int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, all := range o.shards {
		tenures += len(all)
	}
	return tenures, o.operations
}
