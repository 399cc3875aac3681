package multiplex

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// tryAside takes a shared lock that the carrier has already for another virtual
// session: on that session it would overtake writers who wait. A session that has to be
// connected for it is not waited for beyond ctx and the deadline.
func (v *Session) tryAside(ctx context.Context, deadline time.Time, tag namespace.Tag) (bool, error) {
	s := v.source
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if !deadline.IsZero() {
		defer time.AfterFunc(time.Until(deadline), cancel).Stop()
	}
	ln, err := s.lanes.spare(ctx, tag, false)
	switch {
	case err != nil:
		return false, err
	case ln == nil:
		return false, session.ErrNoSession
	}
	if err := s.reserve(1); err != nil {
		s.lanes.put(ln)
		return false, err
	}
	stop := context.AfterFunc(ctx, ln.session.Hurry)
	held, err := ln.try(v, tag, session.Shared)
	stop()
	if !held {
		s.used.Add(-1)
	}
	s.lanes.put(ln)
	return held, err
}

// tryParked tries a key that waits for a lane.
func (v *Session) tryParked(ctx context.Context, tag namespace.Tag, mode session.Mode) (bool, error) {
	o := newOp(v, tag, mode, false)
	err := v.do(ctx, time.Time{}, tag, o)
	held := err == nil && o.Held // else it may be under way still
	switch {
	case errors.Is(err, errLeft), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false, nil // the wait is over
	case errors.Is(err, errTaken), errors.Is(err, session.ErrLockTableFull):
		return false, nil
	case err != nil:
		return false, err
	}
	o.free()
	if !held {
		return false, nil
	}
	return v.took(tag, mode, v.carrier)
}

// Holder asks on a session that nothing else depends on.
func (v *Session) Holder(tag namespace.Tag) (session.Holder, bool, error) {
	s := v.source
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	v.setHurry(cancel)
	defer v.setHurry(nil)
	ln, err := s.lanes.spare(ctx, tag, true)
	if ln == nil {
		return session.Holder{}, false, err
	}
	v.setHurry(ln.session.Hurry)
	holder, ok, err := ln.session.Holder(tag)
	if errors.Is(err, session.ErrLost) {
		ln.kill(err)
	}
	v.setHurry(nil) // before the lane is another's
	s.lanes.put(ln)
	return holder, ok, err
}
