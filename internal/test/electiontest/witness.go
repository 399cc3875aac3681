//go:build linux

package electiontest

import (
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

// A witness receives the acts of all nodes in one queue of the kernel, in the order
// in which they happen.
type witness struct {
	conn *net.UDPConn
	done chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed by the next reign
	during  string        // the fault of this round
	reigns  []reign       // by term
	late    []late
	faulty  []string // what must not be, whatever happens
	fence   fence
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
	w := &witness{conn: conn, done: make(chan struct{}), changed: make(chan struct{}), fence: fence{over: make(map[author]bool)}}
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
	w.fence.see(a)
	if a.n == 0 {
		return
	}
	i, known := slices.BinarySearchFunc(w.reigns, a.term, func(r reign, t leader.Term) int { return r.term.Compare(t) })
	if !known {
		w.reigns = slices.Insert(w.reigns, i, reign{term: a.term, node: a.node, pid: a.pid, began: a.at, after: w.during})
		close(w.changed)
		w.changed = make(chan struct{})
	}
	r := &w.reigns[i]
	r.acts++
	r.last = a.at
	r.sent = max(r.sent, a.n)
	if r.node != a.node || r.pid != a.pid {
		w.faulty = append(w.faulty, fmt.Sprintf("term %v has two leaders: node %d (process %d) and node %d (process %d)", a.term, r.node, r.pid, a.node, a.pid))
	}
	if i+1 < len(w.reigns) {
		first := slices.MinFunc(w.reigns[i+1:], func(x, y reign) int { return x.began.Compare(y.began) })
		w.late = append(w.late, late{a, first})
	}
}

// begin says which fault comes now, and returns the reign that it meets, the
// latest.
func (w *witness) begin(fault string) reign {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.during = fault
	return w.latestLocked()
}

func (w *witness) openFence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fence.open = true
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
	timeout := time.After(Patience)
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

// awaitAct waits for an act of the latest term after a moment.
func (w *witness) awaitAct(t *testing.T, after time.Time) (last reign) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		last = w.latestLocked()
		return last.last.After(after)
	}, Patience, time.Millisecond, "nobody leads")
	return last
}

// drain takes what was late, and what is wrong in any case.
func (w *witness) drain() (acts []late, faulty []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	acts, faulty = w.late, w.faulty
	w.late, w.faulty = nil, nil
	return acts, faulty
}

// verdict is that of the fence.
func (w *witness) verdict() (accepted, refused int, stale []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fence.accepted, w.fence.refused, slices.Clone(w.fence.stale)
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
