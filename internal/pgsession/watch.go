package pgsession

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
)

// Watch begins to watch the session. The watching goroutine reports its loss once.
func (s *Session) Watch(report func(error)) { s.beginWatch(report, false) }

// Listen is Watch without pings: unless its owner pings in time, the session ends T after its last
// statement.
func (s *Session) Listen(report func(error)) { s.beginWatch(report, true) }

// beginWatch gives the connection to a goroutine until the session is lost or endWatch takes it
// back.
func (s *Session) beginWatch(report func(error), quiet bool) {
	s.stopWatch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.cancelWatch, s.watchDone = cancel, done
	s.from.counters.watches.Add(1)
	s.from.watches.Go(func() {
		defer cancel()
		err := s.listen(ctx, quiet)
		s.unwatched()
		close(done) // first: report may take the session back
		if err != nil {
			report(err)
		}
	})
}

// listen returns nil when ctx ends, and the loss of the session otherwise. It detects at once that
// the server ended the session. It pings a silent server, unless quiet.
func (s *Session) listen(ctx context.Context, quiet bool) error {
	if ctx.Err() == nil {
		if err := s.endTransaction(); err != nil {
			return err
		}
	}
	s.setDeadline(0)
	last := time.Now()
	for {
		pause := time.Until(last.Add(s.from.times.Interval))
		if quiet {
			pause = s.lease()
		}
		next, cancel := context.WithTimeout(ctx, pause)
		err := s.link.conn.WaitForNotification(next)
		// Only the end of our own context means "continue". A failed keepalive also looks like a
		// timeout, and is a loss.
		over := next.Err() != nil && !s.link.conn.IsClosed()
		cancel()
		switch {
		case err == nil: // an unsolicited notification
			continue
		case !over:
			return s.lose(err)
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the watch was called off, which is not a loss
		case quiet && s.lease() <= 0:
			return s.lose(session.ErrSilent)
		case quiet:
			continue // this clock is ahead of the other
		}
		last = time.Now()
		if err := s.ping(); err != nil {
			return err
		}
		s.setDeadline(0)
	}
}

// lease is the time until the server may end the session.
func (s *Session) lease() time.Duration {
	return time.Duration(s.deadline.Load()) + s.from.config.margin() - boottime.Now()
}

// Ping proves that the session lives, or ends it: it waits for an answer until the deadline. It
// ends a watch.
func (s *Session) Ping() error {
	await(s.endWatch(func() {}))
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	return s.ping()
}

// ping proves that the session lives. It is never cancelled, because that would end the session. It
// ends with its answer, or at the deadline.
func (s *Session) ping() error {
	s.pingSent.Store(int64(boottime.Now()))
	defer s.pingSent.Store(0)
	for {
		left := s.from.config.statementBound()
		if deadline := s.deadline.Load(); deadline != 0 { // otherwise there is no lock yet
			left = time.Duration(deadline) - boottime.Now()
		}
		if left <= 0 {
			return s.lose(session.ErrSilent)
		}
		err := s.statement(s.link.statements.ping, nil, left, func([][]byte) {})
		switch {
		case err == nil:
			s.from.counters.pings.Add(1)
			return nil
		case errors.Is(err, session.ErrLost):
			return err
		}
		// A cancel request hit the ping: the session lives, but this proves nothing.
	}
}

// stopWatch takes the connection back from the watch, if there is one.
func (s *Session) stopWatch() { await(s.callOffWatch()) }

// callOffWatch ends the watch, if there is one. The returned channel is closed when the connection
// is free; nil = it is free.
func (s *Session) callOffWatch() (ended <-chan struct{}) {
	// The wait for the answer to a current ping is as limited as that for a statement. The deadline
	// remains the last moment.
	return s.endWatch(func() {
		bound := s.within(s.from.config.statementBound(), boottime.Now())
		s.pingUntil = time.Now().Add(bound) // it may not have begun to wait
		s.setDeadline(bound)
	})
}

// unwatched is called when a watch ends.
func (s *Session) unwatched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pingUntil = time.Time{}
}

func await(done <-chan struct{}) {
	if done != nil {
		<-done
	}
}

// endWatch ends the watch, if there is one. pinging is called if a ping is under way, which
// continues to its end. The connection is free when the returned channel is closed, or nil.
func (s *Session) endWatch(pinging func()) (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, done := s.cancelWatch, s.watchDone
	s.cancelWatch, s.watchDone = nil, nil
	if cancel != nil && s.pingSent.Load() != 0 {
		pinging()
	}
	if cancel != nil {
		cancel() // under mu: a Hurry from now on finds no watch
	}
	return done
}
