package multiplex

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A line is the place of one carrier, which has one while it is needed.
type line struct {
	source  *Source
	current atomic.Pointer[carrier] // nil = none
	looking chan struct{}           // full while somebody looks for a free one of several keys

	mu        sync.Mutex
	closed    bool
	attaching *attachment // under way
	failures  int         // in a row: attempts to connect, and sessions that died before their first answer
	notBefore time.Time   // of the next attempt
}

// An attachment is one attempt to get a session, for all who wait for it.
type attachment struct {
	done    chan struct{}
	carrier *carrier
	err     error
}

// attach returns the line's carrier, which it makes if there is none. ctx and
// deadline, which can be zero, end the call and not the attempt.
func (l *line) attach(ctx context.Context, deadline time.Time) (*carrier, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	if c := l.current.Load(); c != nil {
		l.mu.Unlock()
		return c, nil
	}
	if l.closed {
		l.mu.Unlock()
		return nil, session.ErrClosed
	}
	a := l.attaching
	if a == nil {
		a = &attachment{done: make(chan struct{})}
		l.attaching = a
		l.source.wg.Go(func() { l.connect(a) })
	}
	l.mu.Unlock()
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-a.done:
		return a.carrier, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-expired:
		return nil, context.DeadlineExceeded
	}
}

// connect makes the attempt, not before the pause after the last failure is over.
func (l *line) connect(a *attachment) {
	defer close(a.done)
	s := l.source
	l.mu.Lock()
	pause := time.Until(l.notBefore)
	l.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-s.ctx.Done():
		}
	}
	inner, err := s.inner.Acquire(s.ctx, namespace.Tag{}, time.Time{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attaching = nil
	switch {
	case s.ctx.Err() != nil:
		if err == nil {
			inner.Close()
		}
		a.err = session.ErrClosed
	case err != nil:
		l.failed()
		a.err = err
	default:
		s.setLimit()
		a.carrier = newCarrier(l, inner)
	}
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// failed puts off the next attempt, under mu.
func (l *line) failed() {
	pause := min(firstPause<<min(l.failures, 10), maxPause)
	l.failures++
	l.notBefore = time.Now().Add(pause/2 + rand.N(pause/2))
}

// left notes the end of the line's carrier. One that has never answered counts as
// a failure.
func (l *line) left(c *carrier, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.answered:
		l.failures, l.notBefore = 0, time.Time{}
	case lost:
		l.failed()
	}
}

func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if c := l.current.Load(); c != nil {
		c.kill(session.ErrClosed)
	}
}
