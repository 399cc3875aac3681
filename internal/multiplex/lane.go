package multiplex

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A lane is a real session that waits for one key at a time, and carries those that
// were won on it.
type lane struct {
	lanes   *lanes
	session session.Session
	turn    chan struct{} // full while somebody uses the session
	waiting atomic.Bool   // a wait uses it
	urgent  atomic.Int32  // unlocks that want to

	// guarded by lanes.mu
	out     bool // in the hands of one who waits, or about to
	holders map[namespace.Tag]*Session
	since   time.Time          // of the last lock
	lost    *session.LostError // nil = it lives
}

func newLane(s *lanes, inner session.Session) *lane {
	return &lane{lanes: s, session: inner, turn: make(chan struct{}, 1), out: true, holders: make(map[namespace.Tag]*Session)}
}

// wait waits for one slice. An unlock of a lock that the lane carries ends it.
func (ln *lane) wait(v *Session, tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	ln.turn <- struct{}{}
	defer func() { <-ln.turn }()
	ln.waiting.Store(true)
	defer ln.waiting.Store(false)
	if ln.urgent.Load() > 0 || ln.carries(tag) || !v.waitsWith(ln.session.Interrupt) {
		return false, nil
	}
	held, err := ln.session.Wait(tag, mode, limit)
	return ln.took(v, tag, mode, held, err)
}

// carries reports whether the session has the lock already, which it would
// re-enter. Nobody takes it meanwhile: the caller has the turn.
func (ln *lane) carries(tag namespace.Tag) bool {
	ln.lanes.mu.Lock()
	defer ln.lanes.mu.Unlock()
	_, ok := ln.holders[tag]
	return ok
}

// waitsWith has an interrupt of the virtual session end the real one's wait.
func (v *Session) waitsWith(interrupt func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hurry = interrupt
	return !v.interrupted && v.lost == nil
}

// try takes the lock if it is free.
func (ln *lane) try(v *Session, tag namespace.Tag, mode session.Mode) (bool, error) {
	ln.turn <- struct{}{}
	defer func() { <-ln.turn }()
	if ln.carries(tag) {
		return false, nil
	}
	held, err := ln.session.Try(tag, mode)
	return ln.took(v, tag, mode, held, err)
}

// took books the answer, and has the session watched, on the turn of who asked.
func (ln *lane) took(v *Session, tag namespace.Tag, mode session.Mode, held bool, err error) (bool, error) {
	if errors.Is(err, session.ErrLost) {
		ln.kill(err)
		return false, err
	}
	s := ln.lanes
	s.mu.Lock()
	lost := ln.lost
	if held && lost == nil {
		ln.holders[tag], ln.since = v, time.Now()
	}
	carries := len(ln.holders) > 0
	s.mu.Unlock()
	if lost != nil {
		return false, lost
	}
	if carries {
		ln.session.Watch(ln.kill)
	}
	if held {
		_, _ = v.took(tag, mode, ln) // it counts as held until it is given back, also if v is lost
	}
	return held, err
}

// interrupt takes the turn from who waits on the lane. On failure the lane is lost,
// and the turn is not taken.
func (ln *lane) interrupt() error {
	ln.urgent.Add(1)
	if ln.waiting.Load() {
		ln.session.Interrupt()
	}
	ln.turn <- struct{}{}
	ln.urgent.Add(-1)
	ln.lanes.mu.Lock()
	lost := ln.lost
	ln.lanes.mu.Unlock()
	if lost != nil { // and perhaps closed
		<-ln.turn
		return lost
	}
	return nil
}

// verify asks the server, before anybody waits on.
func (ln *lane) verify(*Session) error {
	if err := ln.interrupt(); err != nil {
		return err
	}
	defer func() { <-ln.turn }()
	err := ln.session.Verify()
	if err != nil {
		ln.kill(err)
	}
	return err
}

// unlock gives one lock back, before anybody waits on.
func (ln *lane) unlock(tag namespace.Tag, mode session.Mode) error {
	if err := ln.interrupt(); err != nil {
		return err
	}
	s := ln.lanes
	err := ln.session.Unlock(tag, mode)
	if err != nil {
		ln.kill(err)
	}
	s.mu.Lock()
	if _, ok := ln.holders[tag]; ok {
		delete(ln.holders, tag)
		s.source.used.Add(-1)
	}
	if len(ln.holders) > 0 {
		s.mu.Unlock()
		ln.session.Watch(ln.kill)
		<-ln.turn
		return err
	}
	<-ln.turn
	idle := !ln.out && ln.lost == nil
	if idle {
		ln.out = true
		s.carrying = slices.DeleteFunc(s.carrying, func(c *lane) bool { return c == ln })
	}
	s.mu.Unlock()
	if idle {
		s.put(ln)
	}
	return err
}

// kill ends the lane from any goroutine, once, and tells who has a lock on it.
func (ln *lane) kill(cause error) {
	lost, ok := errors.AsType[*session.LostError](cause)
	if !ok {
		lost = &session.LostError{Cause: cause}
	}
	s := ln.lanes
	s.mu.Lock()
	if ln.lost != nil {
		s.mu.Unlock()
		return
	}
	ln.lost = lost
	tell := make([]*Session, 0, len(ln.holders))
	for _, v := range ln.holders {
		tell = append(tell, v)
	}
	s.source.used.Add(-int64(len(ln.holders)))
	ln.holders = nil
	idle := !ln.out
	ln.out = true
	s.carrying = slices.DeleteFunc(s.carrying, func(c *lane) bool { return c == ln })
	s.mu.Unlock()
	ln.session.Kill(cause)
	report := func() {
		for _, v := range tell {
			v.lose(lost)
		}
	}
	if !idle { // who has the lane gives it back
		s.source.background(report)
		return
	}
	s.source.wg.Go(func() { // Close waits for the lane; and the caller may have its turn
		report()
		s.put(ln)
	})
}

func (ln *lane) pid() uint32 { return ln.session.PID() }

func (ln *lane) state(now time.Time) session.State { return ln.session.State(now) }

func (ln *lane) loss() error { return ln.session.Loss() }

func (ln *lane) verified(now time.Time) bool { return ln.session.Verified(now) }

func (ln *lane) watchNow() { ln.session.WatchNow() }
