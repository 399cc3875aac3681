//go:build integration

package election

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
)

// An act is one thing that a leader does to the outside world.
type act struct {
	node   int
	term   leader.Term
	n      uint64    // of the term, from 1
	looked time.Time // when its node looked at its context the last time before
	at     time.Time // when it arrived, by the kernel's clock
}

const actSize = 4 * 8

func (a act) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, actSize), uint64(a.node))
	b = binary.BigEndian.AppendUint64(b, a.term.Uint64())
	b = binary.BigEndian.AppendUint64(b, a.n)
	return binary.BigEndian.AppendUint64(b, uint64(a.looked.UnixNano()))
}

func decodeAct(b []byte, at time.Time) act {
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return act{
		node: int(number(0)), term: leader.TermOf(number(1)), n: number(2), at: at,
		looked: time.Unix(0, int64(number(3))),
	}
}

// A reign is a term as the witness saw it.
type reign struct {
	term  leader.Term
	node  int
	began time.Time // its first act
	acts  int
	sent  uint64 // acts, as far as is known
	after fault  // the one during which it began
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

// A witness receives the acts of all nodes in one queue of the kernel, in the order
// in which they happen.
type witness struct {
	conn *net.UDPConn
	done chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed by the next reign
	during  fault
	reigns  []reign // by term
	late    []late
	faulty  []string // what must not be, whatever happens
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
		// Root may have a long queue; anybody else has what the system allows.
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 8<<20)
	}))
	require.NoError(t, err)
	w := &witness{conn: conn, done: make(chan struct{}), changed: make(chan struct{})}
	go w.receive()
	t.Cleanup(func() {
		_ = conn.Close()
		<-w.done
	})
	return w
}

func (w *witness) address() string { return w.conn.LocalAddr().String() }

func (w *witness) receive() {
	defer close(w.done)
	b, control := make([]byte, 2*actSize), make([]byte, 256)
	for {
		n, c, _, _, err := w.conn.ReadMsgUDP(b, control)
		if err != nil {
			return // closed
		}
		at := arrival(control[:c])
		if n != actSize || at.IsZero() {
			panic("BUG: no act, or no time")
		}
		w.see(decodeAct(b, at))
	}
}

// arrival is the kernel's timestamp.
func arrival(control []byte) time.Time {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SO_TIMESTAMPNS {
			ts := *(*syscall.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix())
		}
	}
	return time.Time{}
}

// see judges one act.
func (w *witness) see(a act) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, known := slices.BinarySearchFunc(w.reigns, a.term, func(r reign, t leader.Term) int { return r.term.Compare(t) })
	if !known {
		w.reigns = slices.Insert(w.reigns, i, reign{term: a.term, node: a.node, began: a.at, after: w.during})
		close(w.changed)
		w.changed = make(chan struct{})
	}
	r := &w.reigns[i]
	r.acts++
	r.sent = max(r.sent, a.n)
	if r.node != a.node {
		w.faulty = append(w.faulty, fmt.Sprintf("term %v has two leaders: nodes %d and %d", a.term, r.node, a.node))
	}
	if i+1 < len(w.reigns) {
		first := slices.MinFunc(w.reigns[i+1:], func(x, y reign) int { return x.began.Compare(y.began) })
		w.late = append(w.late, late{a, first})
	}
}

// begin says which fault comes now, and returns the reign that it meets, the
// latest.
func (w *witness) begin(f fault) reign {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.during = f
	return w.latestLocked()
}

// leads reports whether a node is the last that began to lead.
func (w *witness) leads(node int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.latestLocked()
	return !r.term.IsZero() && r.node == node
}

func (w *witness) latestLocked() reign {
	if len(w.reigns) == 0 {
		return reign{}
	}
	return w.reigns[len(w.reigns)-1]
}

// awaitTerm waits for the first act of a term after another.
func (w *witness) awaitTerm(t *testing.T, after leader.Term) reign {
	t.Helper()
	timeout := time.After(patience)
	for {
		w.mu.Lock()
		changed, last := w.changed, w.latestLocked()
		w.mu.Unlock()
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

// drain takes what was late, and what is wrong in any case.
func (w *witness) drain() (acts []late, faulty []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	acts, faulty = w.late, w.faulty
	w.late, w.faulty = nil, nil
	return acts, faulty
}

// total counts the acts, and those that the queue lost.
func (w *witness) total() (reigns, acts, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.reigns {
		acts += r.acts
		lost += int(r.sent) - r.acts
	}
	return len(w.reigns), acts, lost
}
