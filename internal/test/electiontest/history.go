//go:build linux

package electiontest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

// An operation is one act of a leader in the outside world.
type operation struct {
	node, pid int
	term      leader.Term
	n         uint64    // within the term, from 1; 0 = after its end, only for the fence
	looked    time.Time // when its node last checked its context
	at        time.Time // when it arrived, by the kernel's clock
}

const operationSize = 5 * 8

func (op operation) encode() []byte {
	b := make([]byte, 0, operationSize)
	for _, n := range []uint64{uint64(op.node), uint64(op.pid), op.term.Uint64(), op.n, uint64(op.looked.UnixNano())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func decodeOperation(b []byte, at time.Time) operation {
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return operation{
		node: int(number(0)), pid: int(number(1)), term: driver.TermOf(number(2)), n: number(3), at: at,
		looked: time.Unix(0, int64(number(4))),
	}
}

// A leadership is the observer's view of a term.
type leadership struct {
	term       leader.Term
	node, pid  int
	began      time.Time // its first operation
	last       time.Time // its last, so far
	operations int
	sent       uint64 // number of known operations
	after      string // the fault during which it began
}

// A lateOperation came after the first one of a later term.
type lateOperation struct {
	operation
	successor leadership
}

func (l lateOperation) by() time.Duration { return l.at.Sub(l.successor.began) }

func (l lateOperation) String() string {
	return fmt.Sprintf("by node %d in term %v, %v after the first operation of node %d in term %v, which began when the leader was %s; it had looked at its context %v before",
		l.node, l.term, l.by(), l.successor.node, l.successor.term, l.successor.after, l.at.Sub(l.looked))
}

// A fence receives operations and compares terms: it accepts none below the greatest that it has
// seen. Its checker does not compare terms.
type fence struct {
	open    bool // accepts everything: the control
	highest leader.Term

	accepted, refused int
	last              writer          // of the last accepted operation
	over              map[writer]bool // writers that were followed by others
	stale             []string
}

// A writer is one leadership of one process.
type writer struct {
	node, pid int
	term      leader.Term
}

func (f *fence) see(op operation) {
	if op.term.Compare(f.highest) < 0 && !f.open {
		f.refused++
		return
	}
	if op.term.Compare(f.highest) > 0 {
		f.highest = op.term
	}
	f.accepted++
	by := writer{op.node, op.pid, op.term}
	if by != f.last {
		f.over[f.last], f.last = true, by
	}
	if f.over[by] {
		f.stale = append(f.stale, fmt.Sprintf("accepted from node %d in term %v, after another leader's", op.node, op.term))
	}
}
