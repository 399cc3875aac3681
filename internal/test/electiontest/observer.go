//go:build linux

package electiontest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
)

// An observer receives the operations of all nodes in one queue of the kernel, in the order in
// which they occur.
type observer struct {
	queue *Queue

	mu          sync.Mutex
	changed     chan struct{} // closed by the next leadership
	during      string        // the fault of this round
	leaderships []leadership  // by term
	late        []lateOperation
	faulty      []string // errors under any circumstances
	fence       fence
}

func newObserver(t *testing.T) *observer {
	t.Helper()
	o := &observer{changed: make(chan struct{}), fence: fence{over: make(map[writer]bool)}}
	o.queue = NewQueue(t, operationSize, func(b []byte, at time.Time) { o.see(decodeOperation(b, at)) })
	return o
}

func (o *observer) address() string { return o.queue.Address() }

// see checks one operation.
func (o *observer) see(op operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fence.see(op)
	if op.n == 0 {
		return
	}
	i, known := slices.BinarySearchFunc(o.leaderships, op.term, func(r leadership, t leader.Term) int { return r.term.Compare(t) })
	if !known {
		o.leaderships = slices.Insert(o.leaderships, i, leadership{term: op.term, node: op.node, pid: op.pid, began: op.at, after: o.during})
		close(o.changed)
		o.changed = make(chan struct{})
	}
	r := &o.leaderships[i]
	r.operations++
	r.last = op.at
	r.sent = max(r.sent, op.n)
	if r.node != op.node || r.pid != op.pid {
		o.faulty = append(o.faulty, fmt.Sprintf("term %v has two leaders: node %d (process %d) and node %d (process %d)", op.term, r.node, r.pid, op.node, op.pid))
	}
	if i+1 < len(o.leaderships) {
		first := slices.MinFunc(o.leaderships[i+1:], func(x, y leadership) int { return x.began.Compare(y.began) })
		o.late = append(o.late, lateOperation{op, first})
	}
}

// begin records the current fault, and returns the leadership that it hits, the latest.
func (o *observer) begin(fault string) leadership {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.during = fault
	return o.latestLocked()
}

func (o *observer) openFence() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fence.open = true
}

// leads reports whether a node is the latest that began to lead.
func (o *observer) leads(node int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.latestLocked()
	return !r.term.IsZero() && r.node == node
}

func (o *observer) latestLocked() leadership {
	if len(o.leaderships) == 0 {
		return leadership{}
	}
	return o.leaderships[len(o.leaderships)-1]
}

// awaitTerm waits for the first operation of a later term.
func (o *observer) awaitTerm(t *testing.T, after leader.Term) leadership {
	t.Helper()
	timeout := time.After(Patience)
	for {
		o.mu.Lock()
		changed, last := o.changed, o.latestLocked()
		o.mu.Unlock()
		if last.term.Compare(after) > 0 {
			return last
		}
		select {
		case <-changed:
		case <-timeout:
			require.Fail(t, "nobody leads", "after term %v", after)
		}
	}
}

// awaitOperation waits for an operation of the latest term after a given time.
func (o *observer) awaitOperation(t *testing.T, after time.Time) (last leadership) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		last = o.latestLocked()
		return last.last.After(after)
	}, Patience, time.Millisecond, "nobody leads")
	return last
}

// drain returns and clears the late operations, and the other errors.
func (o *observer) drain() (operations []lateOperation, faulty []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	operations, faulty = o.late, o.faulty
	o.late, o.faulty = nil, nil
	return operations, faulty
}

// verdict returns the result of the fence.
func (o *observer) verdict() (accepted, refused int, stale []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fence.accepted, o.fence.refused, slices.Clone(o.fence.stale)
}

// total counts the operations, and those that the queue lost.
func (o *observer) total() (terms, operations, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.leaderships {
		operations += r.operations
		lost += int(r.sent) - r.operations
	}
	return len(o.leaderships), operations, lost
}
