package leasehttp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A direct is a transport to one server over plain HTTP/1.1. It writes a request and
// reads its answer in the caller's goroutine: http.Transport hands both to goroutines
// of the connection, which costs as much again as all else that a client does.
type direct struct {
	address string
	header  string // of every request
	dialer  net.Dialer

	mu     sync.Mutex
	idle   []*directConn // that was used last at the end
	reaper *time.Timer   // nil = nothing is idle
}

type directConn struct {
	net.Conn
	limit  io.LimitedReader
	reader *bufio.Reader // of limit
	buffer []byte
	used   time.Time // the last time; zero = never
}

func newDirect(base *url.URL, header http.Header) *direct {
	var lines strings.Builder
	lines.WriteString("Host: " + base.Host + "\r\n")
	_ = header.Write(&lines) // a Builder takes all
	return &direct{
		address: net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), "80")),
		header:  lines.String(),
		dialer:  net.Dialer{Timeout: DefaultTimeout},
	}
}

func (d *direct) send(ctx context.Context, m *message, timeout time.Duration) (answer, error) {
	if err := context.Cause(ctx); err != nil {
		return answer{}, err
	}
	conn, err := d.get(ctx, time.Now().Add(timeout))
	if err != nil {
		return answer{}, err
	}
	cut := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	conn.format(m, d.header)
	a, again, err := conn.exchange()
	whole := cut() // ctx will not spoil the next one's deadline
	if err == nil && again && whole {
		d.put(conn)
		return a, nil
	}
	_ = conn.Close()
	if err == nil {
		return a, nil
	}
	if !conn.used.IsZero() { // the server ended it, and perhaps all of them
		d.CloseIdleConnections()
	}
	if cause := context.Cause(ctx); cause != nil {
		return answer{}, cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return answer{}, err
}

// format leaves the request in the buffer.
func (c *directConn) format(m *message, header string) {
	b := append(c.buffer[:0], m.method...)
	b = append(append(append(b, ' '), m.target...), " HTTP/1.1\r\n"...)
	b = append(b, header...)
	if m.body != nil {
		b = strconv.AppendInt(append(b, "Content-Length: "...), int64(len(m.body)), 10)
		b = append(b, "\r\n"...)
	}
	c.buffer = append(append(b, "\r\n"...), m.body...)
}

// exchange sends the buffer and reads the answer; again = the connection can carry
// another request.
func (c *directConn) exchange() (a answer, again bool, err error) {
	if _, err := c.Write(c.buffer); err != nil {
		return answer{}, false, err
	}
	c.limit.N = maxAnswer + 1<<20 // a head that does not end
	if _, err := c.reader.Peek(1); err != nil {
		return answer{}, false, err
	}
	data, _ := c.reader.Peek(c.reader.Buffered())
	if head, a, length, ok := plainHead(data); ok {
		_, _ = c.reader.Discard(head)
		a.body = make([]byte, length)
		_, err := io.ReadFull(c.reader, a.body)
		return a, true, cmp.Or(err, c.nothingMore())
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return answer{}, false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusOK {
		return answer{}, false, fmt.Errorf("lock server: unexpected status %d", response.StatusCode)
	}
	if a, err = readAnswer(response); err == nil {
		err = c.nothingMore()
	}
	return a, !response.Close, err
}

func (c *directConn) nothingMore() error {
	if c.reader.Buffered() > 0 {
		return errors.New("lock server: more than one answer")
	}
	return nil
}

// get returns a connection that ends at deadline.
func (d *direct) get(ctx context.Context, deadline time.Time) (*directConn, error) {
	for conn := d.take(); conn != nil; conn = d.take() {
		if conn.SetDeadline(deadline) == nil && quiet(conn.Conn) {
			return conn, nil
		}
		_ = conn.Close() // the server did, or said something that nobody asked for
	}
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errNoAnswer)
	defer cancel()
	conn, err := d.dialer.DialContext(ctx, "tcp", d.address)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	c := &directConn{Conn: conn, limit: io.LimitedReader{R: conn}}
	c.reader = bufio.NewReader(&c.limit)
	_ = conn.SetDeadline(deadline) // it fails only on a connection that is closed
	return c, nil
}

func (d *direct) take() *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.idle) - 1
	if last < 0 {
		return nil
	}
	conn := d.idle[last]
	d.idle = d.idle[:last]
	return conn
}

func (d *direct) put(conn *directConn) {
	conn.used = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) == maxIdleConns {
		_ = conn.Close()
		return
	}
	d.idle = append(d.idle, conn)
	if d.reaper == nil {
		d.reaper = time.AfterFunc(maxIdleTime, d.reap)
	}
}

// reap closes what was idle for too long, and comes again if something is left.
func (d *direct) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := 0
	for old < len(d.idle) && time.Since(d.idle[old].used) >= maxIdleTime {
		_ = d.idle[old].Close()
		old++
	}
	d.idle = append(d.idle[:0], d.idle[old:]...)
	if d.reaper = nil; len(d.idle) > 0 {
		d.reaper = time.AfterFunc(maxIdleTime, d.reap)
	}
}

// CloseIdleConnections closes what is not in use.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.idle {
		_ = conn.Close()
	}
	d.idle = nil
	if d.reaper != nil {
		d.reaper.Stop()
		d.reaper = nil
	}
}
