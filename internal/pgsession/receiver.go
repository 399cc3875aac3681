package pgsession

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A receiver is a session's network connection. It knows whether all data from the server has been
// processed. The data passes through the socket, TLS if there is any, and buffers of pgconn and
// pgproto3. Each of them can have read past the end of the answer that is being processed.
type receiver struct {
	net.Conn // as pgconn would use it
	socket   *checkedConn
	tls      bool

	mu      sync.Mutex   // held over a Read of TLS
	ahead   []byte       // decrypted, and read in advance
	more    [512]byte    // its buffer
	plain   int64        // bytes that were decrypted
	fronted atomic.Int64 // bytes that reached the frontend's buffer
}

// receive makes the connection a receiver, if its socket can be checked.
func receive(next afterNetConnectFunc) afterNetConnectFunc {
	return func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		raw, encrypted := conn, false
		if t, ok := conn.(*tls.Conn); ok {
			raw, encrypted = t.NetConn(), true
		}
		socket, ok := raw.(*checkedConn)
		conn, err := next(ctx, config, conn)
		if err != nil || !ok {
			return conn, err
		}
		return &receiver{Conn: conn, socket: socket, tls: encrypted}, nil
	}
}

// Read implements net.Conn.
func (r *receiver) Read(p []byte) (int, error) {
	if !r.tls {
		return r.Conn.Read(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	n, err := r.Conn.Read(p)
	r.plain += int64(n)
	return n, err
}

// A countedReader counts what the frontend reads.
type countedReader struct {
	io.Reader
	n *atomic.Int64
}

func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func countFrontend(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		if conn, ok := w.(*receiver); ok {
			r = countedReader{r, &conn.fronted}
		}
		return build(r, w)
	}
}

// judged records that everything but the last unread bytes that the frontend read is processed. The
// reading goroutine calls it.
func (r *receiver) judged(unread int) {
	judged := r.fronted.Load() - int64(unread)
	if !r.tls {
		r.socket.judged(judged)
		return
	}
	if r.decrypted() == judged {
		r.socket.judgedAll()
	}
}

// judged records that a whole answer was received and processed.
func (l *link) judged() {
	if l.received != nil {
		l.received.judged(l.conn.Frontend().ReadBufferLen())
	}
}

// longAgo is a deadline at which a Read returns the data that it has, without a system call.
var longAgo = time.Unix(1, 0)

// decrypted counts the bytes that came through TLS, and those that wait in it. It invalidates the
// read deadline, which every statement sets again.
func (r *receiver) decrypted() int64 {
	_ = r.SetReadDeadline(longAgo) // also ends a Read that holds mu
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.Conn.Read(r.more[:]) // an error other than that of the deadline stays for the next Read
	r.ahead = append(r.ahead, r.more[:n]...)
	r.plain += int64(n)
	return r.plain
}

// nothingNew reports whether all received data is processed. Any goroutine may call it.
func (r *receiver) nothingNew() bool { return r.socket.nothingNew() }
