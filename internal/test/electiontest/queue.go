//go:build linux

package electiontest

import (
	"net"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A queue receives the datagrams of all nodes on a loopback socket, in the order in which they arrive at the
// kernel, each with the kernel's time.
type queue struct {
	conn *net.UDPConn
	done chan struct{}
}

// newQueue opens a queue of datagrams of one size, until the end of the test. One goroutine calls see for
// each.
func newQueue(t *testing.T, size int, see func(datagram []byte, at time.Time)) *queue {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	raw, err := conn.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
		// Root may have a long queue; other users get what the system allows.
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 8<<20)
	}))
	require.NoError(t, err)
	q := &queue{conn: conn, done: make(chan struct{})}
	go q.receive(size, see)
	t.Cleanup(func() {
		_ = conn.Close()
		<-q.done
	})
	return q
}

// address is the destination for datagrams.
func (q *queue) address() string { return q.conn.LocalAddr().String() }

func (q *queue) receive(size int, see func([]byte, time.Time)) {
	defer close(q.done)
	b, control := make([]byte, 2*size), make([]byte, 256)
	for {
		n, c, _, _, err := q.conn.ReadMsgUDP(b, control)
		if err != nil {
			return // closed
		}
		at := arrival(control[:c])
		if n != size || at.IsZero() {
			panic("BUG: no operation, or no time")
		}
		see(b[:n], at)
	}
}

// arrival returns the kernel's timestamp.
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
