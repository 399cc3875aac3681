package advisory

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
)

// Trace records the events that the Locker, which must be new, feeds its lock table.
func (l *Locker) Trace() *tabletrace.Trace {
	trace := tabletrace.Of(l.core.table)
	l.core.setCapacity()
	return trace
}

// TrustSessions makes the Locker trust its sessions until it is notified of their end. It is the
// control of tests in which the Locker checks.
func (l *Locker) TrustSessions() {
	l.verifyBy(func(s session.Session, now time.Time) (seen time.Time) {
		if s.Look(now, false).State == session.Held {
			seen = now
		}
		return seen
	})
}

// DistrustSessions makes the Locker ask the server each time.
func (l *Locker) DistrustSessions() {
	l.verifyBy(func(session.Session, time.Time) (seen time.Time) { return seen })
}

func (l *Locker) verifyBy(verified func(session.Session, time.Time) time.Time) {
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

// ReasonOf says why a lock was lost.
func ReasonOf(cause error) string { return reasonOf(cause) }

// Errors whose facts only the tests read.
type (
	LockTableFullError = lockTableFullError
	PoolExhaustedError = poolExhaustedError
	ReentrantError     = reentrantError
	DeadlockError      = deadlockError
)

// SessionStats are the counters of the Locker's sessions.
func (l *Locker) SessionStats() session.Stats { return l.core.source.Stats() }

// Operations counts tries and unlocks in statements.
func (l *Locker) Operations() int64 { return l.core.stats.operations.Load() }

// PauseEvery is how often it looks.
const PauseEvery = pauseEvery

// Databases are those that Lockers of this process are on.
func Databases() (names []string) {
	databases.Lock()
	defer databases.Unlock()
	return slices.Collect(maps.Keys(databases.known))
}

// Elsewhere makes a new Locker stand for another process: no Locker of this process knows it.
func (l *Locker) Elsewhere() *Locker {
	l.core.database.leave(l.core)
	l.core.database = nil
	return l
}

// WaitsAbroad counts requests that wait while their callers hold locks of other Lockers.
func (l *Locker) WaitsAbroad() int {
	d := l.core.database
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.inside)
}

// Break makes the lock table panic in the middle of an event.
func (l *Locker) Break() {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	l.core.table.Ping(nil, new(locktable.Request), l.core.present())
	l.core.run()
}

// KeepReports bounds the reports that wait for a slow Tracer or Logger.
func (l *Locker) KeepReports(most int) {
	l.core.reports.mu.Lock()
	defer l.core.reports.mu.Unlock()
	l.core.reports.most = most
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config)
}
