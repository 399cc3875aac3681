package advisory

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// shortWait is below the time after which a session gives a statement up itself.
const shortWait = 5 * time.Second

// hasShort reports whether the time that is left is too short for a session to give
// a statement up itself.
func (r *request) hasShort(left time.Duration) bool { return !r.deadline.IsZero() && left < shortWait }

// hurries hurries the session's statement when the caller leaves, or when the time
// that is left is over, until stop.
func (r *request) hurries(ctx context.Context, s session.Session, left time.Duration) (stop func() bool) {
	stop = context.AfterFunc(ctx, s.Hurry)
	if !r.hasShort(left) {
		return stop
	}
	return hurriesAfter(left, s, stop)
}

// hurriesAlways is hurries for what takes several statements, or waits for others.
func (r *request) hurriesAlways(ctx context.Context, s session.Session) (stop func() bool) {
	stop = context.AfterFunc(ctx, s.Hurry)
	if r.deadline.IsZero() {
		return stop
	}
	return hurriesAfter(time.Until(r.deadline), s, stop)
}

func hurriesAfter(left time.Duration, s session.Session, leaves func() bool) (stop func() bool) {
	timer := time.AfterFunc(left, s.Hurry)
	return func() bool { timer.Stop(); return leaves() }
}
