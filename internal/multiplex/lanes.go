package multiplex

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// lanes are the sessions that wait, a bounded number of them.
type lanes struct {
	source *Source

	mu       sync.Mutex
	closed   bool
	open     int                // those that exist or are being connected
	all      map[*lane]struct{} // those that exist
	carrying []*lane            // those on which nobody waits, and which carry, the oldest first
	parked   []*turn            // waits without a lane, in order
}

// A turn is a wait without a lane.
type turn struct {
	tag  namespace.Tag
	lane chan *lane // gets a lane, or nil for the room to open one
}

const (
	// parkedPause is how often a parked key is tried.
	parkedPause = 50 * time.Millisecond
	// settled is how long a lock has been carried when its lane waits for others, too:
	// its unlock must interrupt that then.
	settled = 100 * time.Millisecond
)

// Wait waits for the lock for one slice, or for a lane. The loss of another lock of
// the session ends it.
func (v *Session) Wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	held, err := v.wait(tag, mode, max(limit, time.Millisecond))
	return v.unlessLost(held, err)
}

func (v *Session) wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (held bool, err error) {
	if err := v.begin(); err != nil {
		return false, err
	}
	s := v.source
	if err := s.reserve(1); err != nil {
		return false, err
	}
	waited := false
	defer func() {
		if !held || !waited { // a try has counted it again
			s.used.Add(-1)
		}
	}()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	if !v.mayWait(cancel) {
		return false, nil
	}
	defer v.setHurry(nil)
	start := time.Now()
	ln, held, err := s.lanes.take(ctx, v, tag, mode)
	if ln == nil {
		return held, err
	}
	waited = true
	held, err = ln.wait(v, tag, mode, limit-time.Since(start))
	s.lanes.put(ln)
	return held, err
}

// mayWait reports whether the wait was not interrupted before it began.
func (v *Session) mayWait(cancel func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.interrupted || v.lost != nil {
		v.interrupted = false
		return false
	}
	v.hurry = cancel
	return true
}

// take returns a lane for a wait. Without one it is parked, until it has one, or
// the key, or its time is over.
func (s *lanes) take(ctx context.Context, v *Session, tag namespace.Tag, mode session.Mode) (ln *lane, held bool, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, false, &session.LostError{Cause: session.ErrClosed}
	}
	if len(s.parked) == 0 {
		ln, room := s.free(tag, time.Now())
		if ln != nil || room {
			s.mu.Unlock()
			return s.filled(ctx, ln)
		}
	}
	t := &turn{tag: tag, lane: make(chan *lane, 1)}
	s.parked = append(s.parked, t)
	s.mu.Unlock()
	for {
		// All look at the same moments, so that they are one batch.
		now := time.Now()
		timer := time.NewTimer(now.Truncate(parkedPause).Add(parkedPause).Sub(now))
		select {
		case ln := <-t.lane:
			timer.Stop()
			return s.filled(ctx, ln)
		case <-timer.C:
			if held, err := v.tryParked(ctx, tag, mode); held || err != nil {
				s.unpark(t)
				return nil, held, err
			}
			s.deal()
		case <-ctx.Done():
			timer.Stop()
			s.unpark(t)
			return nil, false, nil
		}
	}
}

// filled returns the lane, or a new one in the room that it is.
func (s *lanes) filled(ctx context.Context, ln *lane) (*lane, bool, error) {
	if ln != nil {
		return ln, false, nil
	}
	ln, err := s.connect(ctx)
	return ln, false, err
}

// free takes a lane that does not hold the tag itself, or the room for a new one,
// under mu.
func (s *lanes) free(tag namespace.Tag, now time.Time) (ln *lane, room bool) {
	if s.open < s.source.config.Lanes {
		s.open++
		return nil, true
	}
	for i, ln := range s.carrying {
		if now.Sub(ln.since) < settled {
			break // and so are those behind it
		}
		if _, holds := ln.holders[tag]; !holds {
			ln.out = true
			s.carrying = slices.Delete(s.carrying, i, i+1)
			return ln, false
		}
	}
	return nil, false
}

// deal gives what is free to the first who is parked and can use it.
func (s *lanes) deal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.open >= s.source.config.Lanes && (len(s.carrying) == 0 || now.Sub(s.carrying[0].since) < settled) {
		return // nothing is free, whoever asks
	}
	for i, t := range s.parked {
		if ln, room := s.free(t.tag, now); ln != nil || room {
			s.serve(i, ln)
			return
		}
	}
}

// serve hands a lane, or nil for room, to one who is parked, under mu.
func (s *lanes) serve(i int, ln *lane) {
	t := s.parked[i]
	s.parked = slices.Delete(s.parked, i, i+1)
	t.lane <- ln
}

// unpark ends a turn; what it was given meanwhile goes on.
func (s *lanes) unpark(t *turn) {
	s.mu.Lock()
	if i := slices.Index(s.parked, t); i >= 0 {
		s.parked = slices.Delete(s.parked, i, i+1)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if ln := <-t.lane; ln != nil {
		s.put(ln)
		return
	}
	s.vacate()
}

// connect fills the room with a session, or gives it up.
func (s *lanes) connect(ctx context.Context) (*lane, error) {
	inner, err := s.source.inner.Acquire(ctx, namespace.Tag{}, time.Time{})
	if err != nil {
		s.vacate()
		if ctx.Err() != nil {
			err = nil // the wait is over, that is all
		}
		return nil, err
	}
	ln := newLane(s, inner)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		inner.Close()
		s.vacate()
		return nil, &session.LostError{Cause: session.ErrClosed}
	}
	s.source.wg.Add(1) // until it is closed; Close does not wait yet
	s.all[ln] = struct{}{}
	s.mu.Unlock()
	return ln, nil
}

// vacate gives up the room of a lane.
func (s *lanes) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parked) > 0 && !s.closed {
		s.serve(0, nil)
		return
	}
	s.open--
}

// put gives a lane back on which nobody waits any more.
func (s *lanes) put(ln *lane) {
	s.mu.Lock()
	switch {
	case ln.lost == nil && len(ln.holders) > 0:
		ln.out = false
		s.carrying = append(s.carrying, ln)
		s.mu.Unlock()
		return
	case ln.lost == nil && len(s.parked) > 0:
		s.serve(0, ln)
		s.mu.Unlock()
		return
	}
	lost := ln.lost != nil
	delete(s.all, ln)
	s.mu.Unlock()
	ln.turn <- struct{}{} // behind an unlock that is under way
	if lost {
		ln.session.Close()
	} else {
		ln.session.Release()
	}
	<-ln.turn
	s.vacate()
	s.source.wg.Done()
}

// spare takes a lane that holds the tag not, or makes one, for a moment; nil if
// there is none. empty: it may hold nothing.
func (s *lanes) spare(ctx context.Context, tag namespace.Tag, empty bool) (*lane, error) {
	s.mu.Lock()
	var ln *lane
	room := false
	if !s.closed && len(s.parked) == 0 {
		if ln, room = s.free(tag, time.Now()); ln != nil && empty {
			ln.out, s.carrying, ln = false, append(s.carrying, ln), nil
		}
	}
	s.mu.Unlock()
	switch {
	case ln != nil:
		return ln, nil
	case room:
		return s.connect(ctx)
	}
	return nil, nil
}

func (s *lanes) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *lanes) close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, ln := range all {
		ln.kill(session.ErrClosed)
	}
}
