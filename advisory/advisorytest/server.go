package advisorytest

import (
	"cmp"
	"context"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/session/memory"
	"github.com/pglatch/pglatch/namespace"
)

// A Server stands in for one PostgreSQL database. The Lockers that are opened on it
// exclude each other like processes. It is safe for concurrent use, and needs no Close.
type Server struct{ memory *memory.Server }

// NewServer returns a server on which nothing is locked.
func NewServer() *Server { return &Server{memory.NewServer()} }

// Open is advisory.Open on the server. It ignores DSN, ConnConfig and BeforeConnect. On
// failure the error is a *advisory.ConfigError. The test must Close the Locker.
func (s *Server) Open(config advisory.Config) (*advisory.Locker, error) {
	config.ApplicationName = cmp.Or(config.ApplicationName, "pglatch")
	return advisory.Open(session.WithSource(context.Background(), s.memory.Source(config.ApplicationName)), config)
}

// Kill ends the session with this pid, like pg_terminate_backend, and reports whether
// there was one. Its locks are free when Kill returns. Another goroutine notifies the
// holders of these locks.
func (s *Server) Kill(pid uint32) bool { return s.memory.Kill(pid) }

// KillSessions ends all sessions, like a restart of the server. Sessions that hold
// nothing end too.
func (s *Server) KillSessions() { s.memory.KillSessions() }

// SetUnavailable makes every request that needs a session fail with
// advisory.ErrUnavailable and this cause. SetUnavailable(nil) makes the server
// available again. Sessions that hold or wait for a lock live on; KillSessions ends
// them.
func (s *Server) SetUnavailable(cause error) { s.memory.SetUnavailable(cause) }

// Holders returns the sessions that hold the key, in the order of their grants. Their
// fields Local and Since are zero, because a server does not know them.
func (s *Server) Holders(key namespace.Key) (holders []advisory.Holder) {
	for _, h := range s.memory.Holders(key) {
		holders = append(holders, advisory.Holder{
			PID: h.PID, ApplicationName: h.ApplicationName, State: h.State, Shared: h.Mode == session.Shared, SessionSince: h.BackendStart,
		})
	}
	return holders
}

// Waiters returns how many sessions wait for the key. A Locker has at most one, however
// many callers wait behind it.
func (s *Server) Waiters(key namespace.Key) int { return s.memory.Waiters(key) }

// Locked returns the tags of all held keys, sorted. It leaves out the turnstiles of keys
// that have waiters.
func (s *Server) Locked() []namespace.Tag { return s.memory.Locked() }
