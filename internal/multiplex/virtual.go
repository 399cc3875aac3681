package multiplex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Session is virtual: what the locks of one acquisition live on. Usually that is
// one lock.
type Session struct {
	source  *Source
	carrier *carrier // the one to try on; it can be gone

	mu     sync.Mutex
	holds  []hold
	room   [1]hold
	pid    uint32 // of the session of the last lock, also after its release
	lost   *session.LostError
	report func(error) // nil = nobody asked for a watch

	hurry       func() // ends what is under way and can be ended; nil = nothing
	interrupted bool   // the next wait ends at once
}

var _ session.Session = (*Session)(nil)

func (v *Session) init(s *Source, c *carrier) {
	v.source, v.carrier = s, c
	v.holds = v.room[:0]
}

// A hold is one lock and the real session that it lives on.
type hold struct {
	tag  namespace.Tag
	mode session.Mode
	at   place
}

// A place is a real session that carries locks of virtual ones.
type place interface {
	pid() uint32
	state(now time.Time) session.State
	loss() error
	verified(now time.Time) bool
	verify(v *Session) error
	watchNow()
	kill(cause error)
}

// PID is the server's number of the session that the lock lives on.
func (v *Session) PID() uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pid
}

// Try takes the lock if it is free.
func (v *Session) Try(tag namespace.Tag, mode session.Mode) (bool, error) {
	return v.TryUntil(context.Background(), time.Time{}, tag, mode)
}

// TryUntil is Try for a caller who does not wait for a dead network: soon after
// the end of ctx, or of the time, it fails with a *LostError, and what the server
// does nevertheless is undone.
func (v *Session) TryUntil(ctx context.Context, deadline time.Time, tag namespace.Tag, mode session.Mode) (bool, error) {
	if err := v.begin(); err != nil {
		return false, err
	}
	o := newOp(v, tag, mode, false)
	err := v.do(ctx, deadline, tag, o)
	held := err == nil && o.Held // else it may be under way still
	switch {
	case errors.Is(err, errTaken):
		o.free()
		if mode == session.Shared {
			return v.unlessLost(v.tryAside(ctx, deadline, tag))
		}
		return false, nil
	case errors.Is(err, errLeft):
		return false, err
	}
	o.free()
	if !held {
		return v.unlessLost(false, err)
	}
	return v.took(tag, mode, v.carrier)
}

// do has the carrier of the tag's line do an operation.
func (v *Session) do(ctx context.Context, deadline time.Time, tag namespace.Tag, o *op) error {
	for {
		err := v.carrier.do(ctx, deadline, o)
		if err != errGone { //nolint:errorlint // it is never wrapped
			return err
		}
		c, err := v.source.carrier(ctx, tag, deadline)
		if err != nil {
			return err
		}
		v.carrier = c
	}
}

// TryAny takes the first free one of the tags. Those who look at the same time look
// one after the other, because a key that is in flight looks taken; a Hurry before
// its turn is context.Canceled.
func (v *Session) TryAny(tags []namespace.Tag) (int, error) {
	if err := v.begin(); err != nil {
		return -1, err
	}
	ctx, cancel := context.WithCancel(v.source.ctx)
	defer cancel()
	v.setHurry(cancel)
	defer v.setHurry(nil)
	looking := v.carrier.line.looking
	select {
	case looking <- struct{}{}:
		defer func() { <-looking }()
	case <-ctx.Done():
		_, err := v.unlessLost(false, nil)
		return -1, cmp.Or(err, context.Cause(ctx)) // nothing was sent
	}
	o := newOp(v, namespace.Tag{}, session.Exclusive, false)
	if o.Any = tags; tags == nil {
		o.Any = []namespace.Tag{}
	}
	err := v.do(ctx, time.Time{}, firstOf(tags), o)
	if errors.Is(err, errTaken) {
		return -1, nil
	}
	if err != nil {
		_, lost := v.unlessLost(false, nil) // it ends what is under way
		return -1, cmp.Or(lost, err)
	}
	if !o.Held {
		return -1, nil
	}
	tag := o.Any[o.Index]
	if _, err := v.took(tag, session.Exclusive, v.carrier); err != nil {
		return -1, err
	}
	return slices.Index(tags, tag), nil
}

func firstOf(tags []namespace.Tag) (first namespace.Tag) {
	if len(tags) > 0 {
		first = tags[0]
	}
	return first
}

// begin ends the watch, and fails if the session is lost.
func (v *Session) begin() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report = nil
	if v.lost != nil {
		return v.lost
	}
	return nil
}

// took notes a lock, and is unlessLost.
func (v *Session) took(tag namespace.Tag, mode session.Mode, at place) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds = append(v.holds, hold{tag, mode, at})
	v.pid = at.pid()
	if v.lost != nil {
		return false, v.lost
	}
	return true, nil
}

// unlessLost is the answer to a caller, or the loss of the session meanwhile. What
// was taken nevertheless goes with the session.
func (v *Session) unlessLost(held bool, err error) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil && v.lost != nil {
		return false, v.lost
	}
	return held, err
}

// gave removes a lock from the record.
func (v *Session) gave(tag namespace.Tag, mode session.Mode) (hold, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report = nil
	for i, h := range v.holds {
		if h.tag == tag && h.mode == mode {
			v.holds = slices.Delete(v.holds, i, i+1)
			return h, true
		}
	}
	return hold{}, false
}

// Unlock gives one lock back.
func (v *Session) Unlock(tag namespace.Tag, mode session.Mode) error {
	h, ok := v.gave(tag, mode)
	if !ok {
		if err := v.begin(); err != nil {
			return err
		}
		return fmt.Errorf("BUG: unlock of %v, which the session does not hold", tag)
	}
	return v.unlock(h)
}

func (v *Session) unlock(h hold) error {
	if ln, ok := h.at.(*lane); ok {
		return ln.unlock(h.tag, h.mode)
	}
	o := newOp(v, h.tag, h.mode, true)
	err := h.at.(*carrier).do(context.Background(), time.Time{}, o)
	o.free()
	return err
}

// UnlockAll gives every lock back, all at the same time.
func (v *Session) UnlockAll() error {
	v.mu.Lock()
	v.report = nil
	holds, lost := v.holds, v.lost
	v.holds = nil
	v.mu.Unlock()
	errs := make([]error, len(holds))
	var wg sync.WaitGroup
	for i, h := range holds[min(1, len(holds)):] {
		wg.Go(func() { errs[i+1] = v.unlock(h) })
	}
	if len(holds) > 0 {
		errs[0] = v.unlock(holds[0])
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if lost != nil {
		return lost
	}
	return nil
}

// Interrupt ends a Wait that is under way, or the next one.
func (v *Session) Interrupt() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.interrupted = true
	if v.hurry != nil {
		v.hurry()
	}
}

// Hurry ends what is under way, if it can be ended without harm to others.
func (v *Session) Hurry() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hurry != nil {
		v.hurry()
	}
}

func (v *Session) setHurry(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hurry = f
}

// Watch asks for a report of the loss. The real sessions are watched anyway.
func (v *Session) Watch(report func(error)) {
	v.mu.Lock()
	lost := v.lost
	if lost == nil {
		v.report = report
	}
	v.mu.Unlock()
	if lost != nil {
		v.source.background(func() { report(lost) })
	}
}

// WatchNow begins at once a watch that would begin in a while.
func (v *Session) WatchNow() {
	v.mu.Lock()
	at := v.room[0].at
	if len(v.holds) > 0 {
		at = v.holds[0].at
	}
	v.mu.Unlock()
	if at != nil {
		at.watchNow()
	}
}

// lose makes the session lost, once, and reports it. A wait for a further lock has
// no use then.
func (v *Session) lose(lost *session.LostError) {
	v.mu.Lock()
	var report func(error)
	if v.lost == nil {
		v.lost = lost
		report, v.report = v.report, nil
		if v.hurry != nil {
			v.hurry()
		}
	}
	v.mu.Unlock()
	if report != nil {
		report(lost)
	}
}

// Kill makes the session lost. A real session goes with it if its time is over, for
// then its other locks are lost too.
func (v *Session) Kill(cause error) {
	v.mu.Lock()
	if v.lost == nil {
		v.lost = &session.LostError{Cause: cause}
	}
	holds := slices.Clone(v.holds)
	v.mu.Unlock()
	for _, h := range holds {
		if h.at.state(time.Now()) == session.Lost {
			h.at.kill(cause)
		}
	}
}

// Release gives the session back.
func (v *Session) Release() { v.Close() }

// Close gives back the locks that are left, in the background.
func (v *Session) Close() {
	v.mu.Lock()
	v.report = nil
	holds := v.holds
	v.holds = nil
	v.mu.Unlock()
	for _, h := range holds {
		v.source.background(func() { _ = v.unlock(h) }) // a failure is the end of its real session, which is reported
	}
}

// Batch and Resume are not for virtual sessions.
func (v *Session) Batch([]*session.Op, time.Duration) error {
	return errors.New("BUG: a batch of a virtual session")
}

// Resume is like Batch.
func (v *Session) Resume() error { return errors.New("BUG: a batch of a virtual session") }
