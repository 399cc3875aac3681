package leasehttp

import (
	"net/http"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease/internal/wire"
)

// servers are those that a client asks. They share one store, so that each of them
// answers what another was asked.
type servers struct {
	all     []*transport
	current atomic.Int64 // where a call begins
}

// turn is the server for a sending of a call that began at a server, and how many of
// the round it leaves: in a round, each is asked once.
func (s *servers) turn(first int64, sending int) (server int64, left int) {
	n := len(s.all)
	return (first + int64(sending)) % int64(n), n - 1 - sending%n
}

// leave has the next calls begin elsewhere, if nobody has seen to that yet.
func (s *servers) leave(server int64) {
	s.current.CompareAndSwap(server, (server+1)%int64(len(s.all)))
}

// isElsewhere reports whether another server can know better: this one gave no answer
// that tells of a lease or of the request. nil = no answer at all.
func isElsewhere(p *wire.Problem) bool {
	return p == nil || p.Status == http.StatusServiceUnavailable || wire.KindOfType(p.Type).Read == nil
}
