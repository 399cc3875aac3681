package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

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
		l.loss = &LostError{Key: l.keys[0], Held: time.Since(l.since()), Cause: cause}
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

// endContext ends the lock's context. It is not called under mu: the cancellation detaches the
// context from its parent, which is code of Acquire's caller. The context has ended before the
// parent is called.
func (l *Lock) endContext(cancel context.CancelCauseFunc, cause error) {
	l.core.outlive(context.Background(), func() { cancel(cause) })
}
