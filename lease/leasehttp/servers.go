package leasehttp

import (
	"net/http"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease/internal/wire"
)

// servers are the lock servers of a client. They share one store, so each of them can answer a
// request that was sent to another.
type servers struct {
	all     []*transport
	current atomic.Int64 // where a call begins
}

// turn returns the server for a sending of a call that began at first, and how many servers of the
// round are left. In a round, each server is tried once.
func (s *servers) turn(first int64, sending int) (server int64, left int) {
	n := len(s.all)
	return (first + int64(sending)) % int64(n), n - 1 - sending%n
}

// leave makes the next calls begin at the next server, unless another call has done so already.
func (s *servers) leave(server int64) {
	s.current.CompareAndSwap(server, (server+1)%int64(len(s.all)))
}

// isElsewhere reports whether another server may give a better answer, because this one said
// nothing about the lease or the request. nil = no answer at all.
func isElsewhere(p *wire.Problem) bool {
	return p == nil || p.Status == http.StatusServiceUnavailable || wire.KindOfType(p.Type).Read == nil
}
