package advisory

import (
	"errors"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A LossReason says in one word why a lock was lost, for metrics and alerts.
type LossReason string

// The reasons. PostgreSQL's codes are those of its manual's appendix A.
const (
	LossTerminated  LossReason = "terminated"   // pg_terminate_backend, or a shutdown of the server (57P01)
	LossIdleTimeout LossReason = "idle_timeout" // the server heard nothing for SessionTTL (57P05)
	LossCrash       LossReason = "crash"        // of the server (57P02)
	LossSilent      LossReason = "silent"       // the server did not answer before the deadline
	LossNotHeld     LossReason = "not_held"     // the session lived without the lock, as behind a pooler
	LossClosed      LossReason = "closed"       // Locker.Close, before the lock was released
	LossConnection  LossReason = "connection"   // the connection ended for another reason, or without one
)

// LossReasons returns all of them.
func LossReasons() []LossReason {
	return []LossReason{LossTerminated, LossIdleTimeout, LossCrash, LossSilent, LossNotHeld, LossClosed, LossConnection}
}

// Reason says in one word why the lock was lost.
func (e *LostError) Reason() LossReason {
	switch sqlstate.Of(e.Cause) {
	case sqlstate.AdminShutdown:
		return LossTerminated
	case sqlstate.IdleSessionTimeout:
		return LossIdleTimeout
	case sqlstate.CrashShutdown:
		return LossCrash
	}
	switch {
	case errors.Is(e.Cause, session.ErrSilent), errors.Is(e.Cause, errLeft):
		return LossSilent
	case errors.Is(e.Cause, session.ErrNotHeld):
		return LossNotHeld
	case errors.Is(e.Cause, ErrClosed):
		return LossClosed
	}
	return LossConnection
}
