package pgsession

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// Verified looks at the socket if the last look is too old. PostgreSQL tells the client
// before it gives the locks of a session back, and the kernel closes the socket of a
// backend that was killed: while nothing has come, the session held its locks, up to
// the time that the message is on its way. That a network is silent is for the
// deadline to find out.
func (s *Session) Verified(now time.Time) bool {
	if s.State(now) != session.Held {
		return false
	}
	at := int64(s.from.clock.At(now))
	if at-s.verified.Load() < int64(session.VerifiedFor) {
		return true
	}
	if s.link.received == nil || !s.link.received.nothingNew() {
		return false
	}
	s.verified.Store(at)
	return true
}

// Verify asks the server, and has the session watched again if it was.
func (s *Session) Verify() error {
	s.verifying.Lock()
	defer s.verifying.Unlock()
	s.mu.Lock()
	report, quiet, ended := s.report, s.quiet, s.ended
	s.mu.Unlock()
	if ended {
		return &session.LostError{Cause: session.ErrClosed}
	}
	if err := s.Ping(); err != nil {
		return err
	}
	if report != nil {
		s.beginWatch(report, quiet)
		s.WatchNow()
	}
	return nil
}

// judged notes that a whole answer was received and judged.
func (l *link) judged() {
	if l.received != nil {
		l.received.judged(l.conn.Frontend().ReadBufferLen())
	}
}
