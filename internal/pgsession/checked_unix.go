//go:build unix

package pgsession

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// A checkedConn is a socket. While one goroutine reads, any other can check whether unprocessed
// data has arrived.
type checkedConn struct {
	net.Conn
	raw        syscall.RawConn
	readSocket func(fd uintptr) bool
	peekSocket func(fd uintptr)

	reading sync.Mutex // held by the current Read, which owns the next three
	into    []byte
	n       int
	err     error

	mu      sync.Mutex // held over each system call, so that data is always either here or in the socket
	arrived int64      // bytes that were read, plus one for an end
	settled int64      // the value of arrived when all of it had been processed
	empty   bool       // the result of peekSocket
	broken  error      // an error that a peek took from the socket
}

// checkDial makes a dialer's connections checked, if they are sockets.
func checkDial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		switch conn.(type) {
		case *net.TCPConn, *net.UnixConn: // in other types the file descriptor may be only a part
			return newCheckedConn(conn)
		}
		return conn, nil
	}
}

func newCheckedConn(conn net.Conn) (net.Conn, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := &checkedConn{Conn: conn, raw: raw, settled: -1}
	c.readSocket, c.peekSocket = c.tryRead, c.peek
	return c, nil
}

// SyscallConn implements syscall.Conn.
func (c *checkedConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read implements net.Conn.
func (c *checkedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.into, c.n, c.err = p, 0, nil
	err := c.raw.Read(c.readSocket)
	c.into = nil
	if err == nil {
		err = c.err
	}
	return c.n, err
}

// tryRead reads once; false: no data is available.
func (c *checkedConn) tryRead(fd uintptr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		c.err = c.opError(c.broken)
		return true
	}
	for {
		n, err := syscall.Read(int(fd), c.into)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			c.err = c.opError(err)
		case n == 0:
			c.err = io.EOF
		default:
			c.n = n
		}
		c.arrived += int64(max(n, 1))
		return true
	}
}

func (c *checkedConn) opError(err error) error {
	return &net.OpError{
		Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError("read", err),
	}
}

// judged records how many of the received bytes are processed.
func (c *checkedConn) judged(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrived == bytes {
		c.settled = bytes
	}
}

// judgedAll records that everything that was read is processed.
func (c *checkedConn) judgedAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = c.arrived
}

// nothingNew reports whether all received data is processed.
func (c *checkedConn) nothingNew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrived != c.settled {
		return false
	}
	c.empty = false
	err := c.raw.Control(c.peekSocket) // does not wait: unlike RawConn.Read it can run beside a Read
	return err == nil && c.empty
}

// peek checks whether the socket is readable; an end also counts.
func (c *checkedConn) peek(fd uintptr) {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	switch {
	case errors.Is(err, syscall.EAGAIN): // Go's sockets do not block
		c.empty = true
	case err != nil && !errors.Is(err, syscall.EINTR):
		c.broken = err // the kernel reports it only once
	}
}
