package leasehttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// A direct is an http.RoundTripper for small requests to one server over plain
// HTTP/1.1. It writes a request and reads its answer in the caller's goroutine:
// http.Transport hands both to goroutines of the connection, which costs as much again
// as all else that a client does.
type direct struct {
	address string
	dialer  net.Dialer

	mu     sync.Mutex
	idle   []*directConn // that was used last at the end
	reaper *time.Timer   // nil = nothing is idle
}

type directConn struct {
	net.Conn
	reader *bufio.Reader
	buffer bytes.Buffer
	used   time.Time // the last time; zero = never
}

func newDirect(base *url.URL) *direct {
	return &direct{
		address: net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), "80")),
		dialer:  net.Dialer{Timeout: DefaultTimeout},
	}
}

// RoundTrip implements http.RoundTripper. The answer's body is read when it returns.
func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := d.get(r.Context())
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	response, err := conn.exchange(r)
	switch whole := cut(); {
	case err != nil:
		_ = conn.Close()
		if !conn.used.IsZero() { // the server ended it, and perhaps all of them
			d.CloseIdleConnections()
		}
		return nil, cmp.Or(context.Cause(r.Context()), err)
	case response.Close || !whole:
		_ = conn.Close()
	default:
		d.put(conn)
	}
	return response, nil
}

// exchange sends a request and reads the answer.
func (c *directConn) exchange(r *http.Request) (*http.Response, error) {
	if err := c.format(r); err != nil {
		return nil, err
	}
	if _, err := c.Write(c.buffer.Bytes()); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusOK {
		return nil, fmt.Errorf("lock server: unexpected status %d", response.StatusCode)
	}
	body, err := readAnswer(response)
	if err != nil {
		return nil, err
	}
	if c.reader.Buffered() > 0 {
		return nil, errors.New("lock server: more than one answer")
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	return response, nil
}

// format leaves the request in the buffer.
func (c *directConn) format(r *http.Request) error {
	b := &c.buffer
	b.Reset()
	for _, s := range [...]string{r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", r.Host, "\r\n"} {
		b.WriteString(s)
	}
	for name, values := range r.Header {
		for _, value := range values {
			for _, s := range [...]string{name, ": ", value, "\r\n"} {
				b.WriteString(s)
			}
		}
	}
	if r.Body == nil {
		b.WriteString("\r\n")
		return nil
	}
	defer func() { _ = r.Body.Close() }()
	b.WriteString("Content-Length: ")
	b.Write(strconv.AppendInt(b.AvailableBuffer(), r.ContentLength, 10))
	b.WriteString("\r\n\r\n")
	if n, err := b.ReadFrom(r.Body); err != nil || n != r.ContentLength {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return nil
}

func (d *direct) get(ctx context.Context) (*directConn, error) {
	d.mu.Lock()
	if last := len(d.idle) - 1; last >= 0 {
		conn := d.idle[last]
		d.idle = d.idle[:last]
		d.mu.Unlock()
		return conn, nil
	}
	d.mu.Unlock()
	conn, err := d.dialer.DialContext(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	return &directConn{Conn: conn, reader: bufio.NewReader(conn)}, nil
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

// CloseIdleConnections closes what is not in use; http.Client calls it.
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
