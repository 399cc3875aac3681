package judge

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// An Operation is one act of a leader, or of the owner of a shard, in the outside world.
type Operation struct {
	Node, PID int
	Key       int // the shard; 0 in an election
	Term      driver.Term
	N         uint64    // within the term, from 1; 0 = after its end, only for the fence
	Looked    time.Time // when its node last checked its context
	At        time.Time // when it arrived, by the kernel's clock
}

// OperationSize is the length of an encoded Operation.
const OperationSize = 6 * 8

// Encode encodes an Operation, without At.
func (op Operation) Encode() []byte {
	b := make([]byte, 0, OperationSize)
	for _, n := range []uint64{uint64(op.Node), uint64(op.PID), uint64(op.Key), op.Term.Uint64(), op.N, uint64(op.Looked.UnixNano())} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// Decode decodes an Operation that arrived at a time.
func Decode(b []byte, at time.Time) Operation {
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return Operation{
		Node: int(number(0)), PID: int(number(1)), Key: int(number(2)), Term: driver.TermOf(number(3)), N: number(4), At: at,
		Looked: time.Unix(0, int64(number(5))),
	}
}

// A Tenure is one term of a key, as its operations show it.
type Tenure struct {
	Term        driver.Term
	Node, PID   int
	Began, Last time.Time     // the first operation, and the last one so far
	Gap         time.Duration // since the last operation of the previous term
	After       string        // the fault during which it began

	operations, late int
	sent             uint64 // known operations
}

// A Late operation came after the first one of a later term of its key.
type Late struct {
	Operation
	Successor Tenure
	Nth       int // of the late ones of its term, from 1
}

// By returns how late the operation was.
func (l Late) By() time.Duration { return l.At.Sub(l.Successor.Began) }

func (l Late) String() string {
	return fmt.Sprintf("on key %d by node %d in term %v, %v after the first operation of node %d in term %v, which began when: %s; it had looked at its context %v before",
		l.Key, l.Node, l.Term, l.By(), l.Successor.Node, l.Successor.Term, l.Successor.After, l.At.Sub(l.Looked))
}

// Terms checks operations in the order in which they arrive. Its methods are safe for concurrent use.
type Terms struct {
	mu      sync.Mutex
	during  string // the fault of this moment
	tenures map[int][]Tenure
	fences  map[int]*fence
	open    bool
	late    []Late
	shared  []string // terms with two leaders
}

// NewTerms returns a checker that has seen nothing.
func NewTerms() *Terms { return &Terms{tenures: make(map[int][]Tenure), fences: make(map[int]*fence)} }

// OpenFences makes the fences accept every operation: the control.
func (t *Terms) OpenFences() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = true
}

// See checks one operation.
func (t *Terms) See(op Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fences[op.Key] == nil {
		t.fences[op.Key] = &fence{over: make(map[writer]bool)}
	}
	t.fences[op.Key].see(op, t.open)
	if op.N == 0 {
		return
	}
	all := t.tenures[op.Key]
	i, known := slices.BinarySearchFunc(all, op.Term, func(r Tenure, term driver.Term) int { return r.Term.Compare(term) })
	if !known {
		began := Tenure{Term: op.Term, Node: op.Node, PID: op.PID, Began: op.At, After: t.during}
		if i > 0 {
			began.Gap = op.At.Sub(all[i-1].Last)
		}
		all = slices.Insert(all, i, began)
		t.tenures[op.Key] = all
	}
	r := &all[i]
	r.operations++
	r.Last, r.sent = op.At, max(r.sent, op.N)
	if r.Node != op.Node || r.PID != op.PID {
		t.shared = append(t.shared, fmt.Sprintf("term %v of key %d has two leaders: node %d (process %d) and node %d (process %d)",
			op.Term, op.Key, r.Node, r.PID, op.Node, op.PID))
	}
	if i+1 < len(all) {
		first := slices.MinFunc(all[i+1:], func(x, y Tenure) int { return x.Began.Compare(y.Began) })
		r.late++
		t.late = append(t.late, Late{op, first, r.late})
	}
}

// During records the fault that is under way, and returns the latest tenure of each key.
func (t *Terms) During(fault string) map[int]Tenure {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.during = fault
	return t.latestLocked()
}

// Latest returns the latest tenure of each key.
func (t *Terms) Latest() map[int]Tenure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latestLocked()
}

func (t *Terms) latestLocked() map[int]Tenure {
	latest := make(map[int]Tenure, len(t.tenures))
	for key, all := range t.tenures {
		latest[key] = all[len(all)-1]
	}
	return latest
}

// Since returns the tenures that began after a moment, by key.
func (t *Terms) Since(moment time.Time) map[int][]Tenure {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := make(map[int][]Tenure)
	for key, all := range t.tenures {
		for _, r := range all {
			if r.Began.After(moment) {
				began[key] = append(began[key], r)
			}
		}
	}
	return began
}

// Drain returns and forgets the operations that were late, and the terms that two nodes shared.
func (t *Terms) Drain() (late []Late, shared []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late, shared = t.late, t.shared
	t.late, t.shared = nil, nil
	return late, shared
}

// Total counts the tenures, their operations, and the operations that were lost on the way.
func (t *Terms) Total() (tenures, operations, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.tenures {
		for _, r := range all {
			tenures, operations, lost = tenures+1, operations+r.operations, lost+int(r.sent)-r.operations
		}
	}
	return tenures, operations, lost
}

// Fenced returns what the fences accepted and refused, and what they should not have accepted.
func (t *Terms) Fenced() (accepted, refused int, stale []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.fences {
		accepted, refused, stale = accepted+f.accepted, refused+f.refused, append(stale, f.stale...)
	}
	return accepted, refused, stale
}

// A fence receives the operations on a key and compares terms: it accepts none below the greatest that it has seen. Its
// checker does not compare terms.
type fence struct {
	highest           driver.Term
	accepted, refused int
	last              writer          // of the last accepted operation
	over              map[writer]bool // writers that were followed by others
	stale             []string
}

// A writer is one tenure of one process.
type writer struct {
	node, pid int
	term      driver.Term
}

func (f *fence) see(op Operation, open bool) {
	if op.Term.Compare(f.highest) < 0 && !open {
		f.refused++
		return
	}
	if op.Term.Compare(f.highest) > 0 {
		f.highest = op.Term
	}
	f.accepted++
	by := writer{op.Node, op.PID, op.Term}
	if by != f.last {
		f.over[f.last], f.last = true, by
	}
	if f.over[by] {
		f.stale = append(f.stale, fmt.Sprintf("accepted on key %d from node %d in term %v, after another leader's", op.Key, op.Node, op.Term))
	}
}
