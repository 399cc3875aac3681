package advisory

import (
	"errors"

	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// reasonOf returns the reason for a loss in one word.
func reasonOf(cause error) string {
	switch sqlstate.Of(cause) {
	case sqlstate.AdminShutdown:
		return lossreason.Terminated
	case sqlstate.IdleSessionTimeout:
		return lossreason.IdleTimeout
	case sqlstate.CrashShutdown:
		return lossreason.Crash
	}
	switch {
	case errors.Is(cause, session.ErrSilent):
		return lossreason.Silent
	case errors.Is(cause, session.ErrNotHeld):
		return lossreason.NotHeld
	case errors.Is(cause, ErrClosed):
		return lossreason.Closed
	}
	return lossreason.Connection
}
