package advisory

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// TrustSessions has the Locker believe in its sessions until somebody tells it
// otherwise: the control of tests in which it looks.
func (l *Locker) TrustSessions() {
	l.verifyBy(func(s session.Session, now time.Time) bool { return s.Look(now, false).State == session.Held })
}

// DistrustSessions has the Locker ask the server each time.
func (l *Locker) DistrustSessions() {
	l.verifyBy(func(session.Session, time.Time) bool { return false })
}

func (l *Locker) verifyBy(verified func(session.Session, time.Time) bool) {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	l.core.verified = verified
}

// SetClock gives the watch for pauses another clock.
func (l *Locker) SetClock(now func() time.Duration) {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	l.core.pauses.clock = now
}

// PauseEvery is how often it looks.
const PauseEvery = pauseEvery
