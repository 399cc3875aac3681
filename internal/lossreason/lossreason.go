// Package lossreason has the words that metrics and traces use for why a lock was lost.
package lossreason

// PostgreSQL's codes are those of its manual's appendix A.
const (
	Terminated  = "terminated"   // pg_terminate_backend, or a shutdown of the server (57P01)
	IdleTimeout = "idle_timeout" // the server heard nothing for SessionTTL (57P05)
	Crash       = "crash"        // of the server (57P02)
	Silent      = "silent"       // the server did not answer before the deadline
	NotHeld     = "not_held"     // the session lived without the lock, as behind a pooler
	Closed      = "closed"       // Locker.Close, before the lock was released
	Connection  = "connection"   // the connection ended for another reason, or without one
)

// All returns every reason.
func All() []string {
	return []string{Terminated, IdleTimeout, Crash, Silent, NotHeld, Closed, Connection}
}
