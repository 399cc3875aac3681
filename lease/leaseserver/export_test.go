package leaseserver

import "github.com/pglatch/pglatch/internal/boottime"

// Patterns returns the patterns of all routes.
func (s *Server) Patterns() (all []string) {
	for _, r := range s.routes() {
		all = append(all, r.pattern)
	}
	return all
}

// Stands reports whether the store has refused a lock to the first request that waits for it, and
// the request now waits: a release hands the lock over to it.
func (s *Server) Stands(name string) bool {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil || lq.confirmed == (boottime.Moment{}) {
		return false
	}
	first := lq.waiters.Front().Value.(*waiter)
	return !first.own && !first.handed
}
