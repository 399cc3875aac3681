package memory

import (
	"slices"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A lock is the server's state of one key. It exists while a session holds it or waits for it.
// Server.mu guards it.
type lock struct {
	holders []holder
	queue   []*waiter
}

type holder struct {
	backend *backend
	mode    session.Mode
}

type waiter struct {
	holder
	granted chan struct{}
}

func conflict(a, b session.Mode) bool { return a == session.Exclusive || b == session.Exclusive }

// free reports whether no other session holds the lock in a conflicting mode.
func (l *lock) free(r holder) bool {
	return !slices.ContainsFunc(l.holders, func(h holder) bool { return h.backend != r.backend && conflict(h.mode, r.mode) })
}

// overtakes reports whether a grant would overtake a waiter for a conflicting mode.
func (l *lock) overtakes(r holder) bool {
	return slices.ContainsFunc(l.queue, func(w *waiter) bool { return conflict(w.mode, r.mode) })
}

// lock returns the server's lock with this tag.
func (s *Server) lock(tag namespace.Tag) *lock {
	l := s.locks[tag]
	if l == nil {
		l = &lock{}
		s.locks[tag] = l
	}
	return l
}

// try grants the lock if that delays no waiter. A session that already has the lock gets it once
// more. The caller holds mu.
func (s *Server) try(tag namespace.Tag, r holder) bool {
	l := s.lock(tag)
	if r.backend.held[hold{tag, r.mode}] == 0 {
		if !l.free(r) || l.overtakes(r) {
			return false // the lock exists for another session
		}
		l.holders = append(l.holders, r)
	}
	r.backend.held[hold{tag, r.mode}]++
	return true
}

// serve grants the lock to waiters in order: none overtakes another that it conflicts with. The
// caller holds mu.
func (s *Server) serve(tag namespace.Tag) {
	l := s.locks[tag]
	waiting := l.queue
	l.queue = nil
	for _, w := range waiting {
		if s.try(tag, w.holder) {
			close(w.granted)
			continue
		}
		l.queue = append(l.queue, w)
	}
	if len(l.holders) == 0 && len(l.queue) == 0 {
		delete(s.locks, tag)
	}
}

// unlock releases one count of a lock; false if it was not held. The caller holds mu.
func (s *Server) unlock(tag namespace.Tag, r holder) bool {
	h := hold{tag, r.mode}
	switch r.backend.held[h] {
	case 0:
		return false
	case 1:
		delete(r.backend.held, h)
		l := s.locks[tag]
		l.holders = slices.DeleteFunc(l.holders, func(have holder) bool { return have == r })
		s.serve(tag)
	default:
		r.backend.held[h]--
	}
	return true
}

// leave removes a waiter from the queue. The caller holds mu.
func (s *Server) leave(tag namespace.Tag, w *waiter) {
	l := s.locks[tag]
	if l == nil {
		return
	}
	l.queue = slices.DeleteFunc(l.queue, func(have *waiter) bool { return have == w })
	s.serve(tag)
}

// passes reports whether a session could get a lock in shared mode. The caller holds mu.
func (s *Server) passes(tag namespace.Tag, b *backend) bool {
	r := holder{b, session.Shared}
	l := s.locks[tag]
	return l == nil || b.held[hold{tag, session.Exclusive}] > 0 || l.free(r) && !l.overtakes(r)
}

// holder returns the holder of a lock: of several sessions, the oldest. The caller holds mu.
func (s *Server) holder(tag namespace.Tag) (session.Holder, bool) {
	l := s.locks[tag]
	if l == nil || len(l.holders) == 0 {
		return session.Holder{}, false
	}
	return slices.MinFunc(l.holders, func(a, b holder) int { return int(a.backend.pid) - int(b.backend.pid) }).describe(), true
}

// describe returns the server's data of a holder. The caller holds mu.
func (h holder) describe() session.Holder {
	return session.Holder{
		PID: h.backend.pid, ApplicationName: h.backend.source.applicationName, State: stateOf(h.backend),
		Mode: h.mode, BackendStart: h.backend.since,
	}
}
