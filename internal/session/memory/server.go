// Package memory is a server of advisory locks in memory, with the rules of PostgreSQL. Locks
// belong to sessions and end with them. There are two modes, and one queue for each key in order of
// arrival. A try does not overtake waiters. Package advisorytest makes the server available to
// users.
package memory

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A Server stands in for one PostgreSQL database: its sources exclude each other like processes. It
// is safe for concurrent use, and needs no Close.
type Server struct {
	mu       sync.Mutex
	locks    map[namespace.Tag]*lock
	backends map[uint32]*backend
	lastPID  uint32
	down     error
}

// NewServer returns a server without locks.
func NewServer() *Server {
	return &Server{
		locks:    make(map[namespace.Tag]*lock),
		backends: make(map[uint32]*backend),
	}
}

// Source returns the sessions of one process.
func (s *Server) Source(applicationName string) session.Source {
	return &source{server: s, applicationName: applicationName}
}

var errKilled = errors.New("FATAL: terminating connection due to administrator command (SQLSTATE 57P01)")

// Kill ends the session with this pid, like pg_terminate_backend, and reports whether there was
// one. Its locks are free when Kill returns. Another goroutine notifies their holders.
func (s *Server) Kill(pid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.backends[pid]
	if b != nil {
		b.kill(errKilled)
	}
	return b != nil
}

// KillSessions ends all sessions, including those without locks, like a restart of the server.
func (s *Server) KillSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range slices.Sorted(maps.Keys(s.backends)) {
		s.backends[pid].kill(errKilled)
	}
}

// SetUnavailable makes every request that needs a session fail with session.ErrUnavailable and this
// cause, until it is set to nil. Sessions that hold or wait for a lock continue; KillSessions ends
// them.
func (s *Server) SetUnavailable(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = cause
}

// Holders returns the sessions that hold the key, in the order of their grants.
func (s *Server) Holders(key namespace.Key) []session.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key.Tag()]
	if l == nil {
		return nil
	}
	holders := make([]session.Holder, len(l.holders))
	for i, h := range l.holders {
		holders[i] = h.describe()
	}
	return holders
}

// Waiters returns how many sessions wait for the key: at most one per Locker, however many callers
// queue behind it.
func (s *Server) Waiters(key namespace.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, tag := range []namespace.Tag{key.Tag(), turnstile.Of(key.Tag())} { // all but the first wait for the turnstile
		if l := s.locks[tag]; l != nil {
			n += len(l.queue)
		}
	}
	return n
}

// Locked returns the tags of all held keys, sorted, without the turnstiles of keys with
// waiters.
func (s *Server) Locked() []namespace.Tag {
	s.mu.Lock()
	defer s.mu.Unlock()
	turnstiles := make(map[namespace.Tag]bool)
	for tag := range s.locks {
		turnstiles[turnstile.Of(tag)] = true
	}
	var tags []namespace.Tag
	for tag, l := range s.locks {
		if len(l.holders) > 0 && !turnstiles[tag] {
			tags = append(tags, tag)
		}
	}
	slices.SortFunc(tags, namespace.Tag.Compare)
	return tags
}
