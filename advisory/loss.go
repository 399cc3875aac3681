package advisory

import (
	"errors"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
)

// look detects a lock whose deadline passed while no goroutine could notice: the process was
// stopped, or the machine suspended.
func (l *Lock) look() {
	now, conns := time.Now(), l.hold.Conns() // they do not change once the lock is granted
	i := slices.IndexFunc(conns, func(n *locktable.Conn) bool { return connOf(n).state(now) == session.Lost })
	if i < 0 {
		return
	}
	c := l.core
	c.mu.Lock()
	if l.live() {
		connOf(conns[i]).expire(now)
		c.run()
	}
	cause := l.hold.Cause()
	c.mu.Unlock()
	if cause != nil {
		_ = l.lose(cause) // the goroutine that found the loss may not have reached this lock yet
	}
}

// lose ends the lock with a cause, once, and returns the first loss.
func (l *Lock) lose(cause error) *LostError {
	if s, ok := errors.AsType[*session.LostError](cause); ok {
		cause = s.Cause
	}
	l.core.reports.hold() // until its context has ended
	defer l.core.resumeReports()
	l.mu.Lock()
	first := l.loss == nil
	if first {
		l.loss = &LostError{Key: l.keys[0], Held: time.Since(l.since), Cause: cause}
		l.core.reportLoss(l, l.loss) // before its release can be reported, and before its holder learns of the loss
		if l.lost != nil {
			close(l.lost)
		}
	}
	loss, cancel := l.loss, l.cancel
	l.mu.Unlock()
	if cancel != nil { // a later call ends it too, because it may get here before the first
		l.endContext(cancel, loss)
	}
	return loss
}
