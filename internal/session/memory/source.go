package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A source makes the sessions of one process.
type source struct {
	server          *Server
	applicationName string
	inUse           sync.WaitGroup // sessions, and reports of their loss

	// guarded by server.mu
	idle   []*backend
	open   int
	closed bool
}

// A backend is the server's side of a session. A process reuses it; each use is a conn. Server.mu
// guards all but the constants.
type backend struct {
	source *source
	pid    uint32
	since  time.Time
	gone   chan struct{} // closed when it ends

	held map[hold]int // counts
	conn *conn        // nil while it is idle
	lost *session.LostError
}

type hold struct {
	tag  namespace.Tag
	mode session.Mode
}

// Acquire returns an idle session or makes one. If it died while it was idle, its first use shows
// that, as with a dead connection.
func (p *source) Acquire(ctx context.Context) (session.Session, error) {
	if ctx.Err() != nil { // before mu: a lock's context looks at its session
		return nil, context.Cause(ctx)
	}
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.closed:
		return nil, session.ErrClosed
	case s.down != nil:
		return nil, fmt.Errorf("%w: %w", session.ErrUnavailable, s.down)
	}
	b := p.backend()
	b.conn = &conn{server: s, backend: b, interrupt: make(chan struct{}, 1)}
	p.inUse.Add(1)
	return b.conn, nil
}

func (p *source) backend() *backend {
	if n := len(p.idle); n > 0 {
		b := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return b
	}
	p.server.lastPID++
	p.open++
	b := &backend{source: p, pid: p.server.lastPID, since: time.Now(), gone: make(chan struct{}), held: make(map[hold]int)}
	p.server.backends[b.pid] = b
	return b
}

// Stats counts the sessions. There are no other counters in memory.
func (p *source) Stats() session.Stats {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return session.Stats{Open: p.open}
}

// Close ends idle sessions and blocks until the others are returned.
func (p *source) Close() {
	p.server.mu.Lock()
	p.closed = true
	for _, b := range p.idle {
		b.end()
	}
	p.idle = nil
	p.server.mu.Unlock()
	p.inUse.Wait()
}

// kill ends the backend with a cause, and notifies its watcher. The caller holds mu.
func (b *backend) kill(cause error) {
	if b.lost != nil {
		return
	}
	b.lost = &session.LostError{Cause: cause}
	b.vanish()
	if b.conn == nil || b.conn.report == nil {
		return
	}
	report, lost := b.conn.report, b.lost
	b.conn.report = nil
	b.source.inUse.Go(func() { report(lost) })
}

// end closes the backend. The caller holds mu.
func (b *backend) end() {
	b.source.open--
	if b.lost == nil {
		b.lost = &session.LostError{Cause: session.ErrClosed}
		b.vanish()
	}
}

// vanish removes the backend, with its locks and waits, from the server. The caller holds mu.
func (b *backend) vanish() {
	s := b.source.server
	close(b.gone)
	clear(b.held)
	delete(s.backends, b.pid)
	for tag, l := range s.locks {
		l.holders = slices.DeleteFunc(l.holders, func(h holder) bool { return h.backend == b })
		l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool { return w.backend == b })
		s.serve(tag)
	}
}

// stateOf returns the state in pg_stat_activity: a waiting backend runs a query.
func stateOf(b *backend) string {
	for _, l := range b.source.server.locks {
		if slices.ContainsFunc(l.queue, func(w *waiter) bool { return w.backend == b }) {
			return "active"
		}
	}
	return "idle"
}
