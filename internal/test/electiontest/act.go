//go:build linux

package electiontest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

// An act is one thing that a leader does to the outside world.
type act struct {
	node, pid int
	term      leader.Term
	n         uint64    // of the term, from 1; 0 = in defiance of its end, for the fence alone
	looked    time.Time // when its node looked at its context the last time before
	at        time.Time // when it arrived, by the kernel's clock
}

const actSize = 5 * 8

func (a act) encode() []byte {
	b := make([]byte, 0, actSize)
	for _, n := range []uint64{uint64(a.node), uint64(a.pid), a.term.Uint64(), a.n, uint64(a.looked.UnixNano())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func decodeAct(b []byte, at time.Time) act {
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return act{
		node: int(number(0)), pid: int(number(1)), term: driver.TermOf(number(2)), n: number(3), at: at,
		looked: time.Unix(0, int64(number(4))),
	}
}

// A reign is a term as the witness saw it.
type reign struct {
	term      leader.Term
	node, pid int
	began     time.Time // its first act
	last      time.Time // its last, so far
	acts      int
	sent      uint64 // acts, as far as is known
	after     string // the fault during which it began
}

// A late act came after the first one of a later term.
type late struct {
	act
	successor reign
}

func (l late) by() time.Duration { return l.at.Sub(l.successor.began) }

func (l late) String() string {
	return fmt.Sprintf("by node %d in term %v, %v after the first act of node %d in term %v, which began when the leader was %s; it had looked at its context %v before",
		l.node, l.term, l.by(), l.successor.node, l.successor.term, l.successor.after, l.at.Sub(l.looked))
}

// A fence is what receives acts and compares terms: it accepts none below the
// greatest that it has seen. Its judge does not compare terms.
type fence struct {
	open    bool // accepts everything: the control
	highest leader.Term

	accepted, refused int
	last              author          // of the last accepted act
	over              map[author]bool // authors after whom others came
	stale             []string
}

// An author is one leadership of one process.
type author struct {
	node, pid int
	term      leader.Term
}

func (f *fence) see(a act) {
	if a.term.Compare(f.highest) < 0 && !f.open {
		f.refused++
		return
	}
	if a.term.Compare(f.highest) > 0 {
		f.highest = a.term
	}
	f.accepted++
	by := author{a.node, a.pid, a.term}
	if by != f.last {
		f.over[f.last], f.last = true, by
	}
	if f.over[by] {
		f.stale = append(f.stale, fmt.Sprintf("accepted from node %d in term %v, after another leader's", a.node, a.term))
	}
}
