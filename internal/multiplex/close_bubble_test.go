package multiplex_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A hooked source numbers its sessions, and does what a test says before theirs.
type hooked struct {
	session.Source
	onAcquire func()      // nil = nothing, as the others
	onClose   func(n int) // n is the number of the session, from 0
	onUnlock  func(n int) error

	mu sync.Mutex
	n  int
}

type hookedSession struct {
	session.Session
	h *hooked
	n int
}

func (h *hooked) Acquire(ctx context.Context, tag namespace.Tag, deadline time.Time) (session.Session, error) {
	h.mu.Lock()
	n := h.n
	h.n++
	h.mu.Unlock()
	if h.onAcquire != nil {
		h.onAcquire()
	}
	s, err := h.Source.Acquire(ctx, tag, deadline)
	if err != nil {
		return nil, err
	}
	return &hookedSession{s, h, n}, nil
}

func (s *hookedSession) Close() {
	if s.h.onClose != nil {
		s.h.onClose(s.n)
	}
	s.Session.Close()
}

func (s *hookedSession) Unlock(tag namespace.Tag, mode session.Mode) error {
	if s.h.onUnlock != nil {
		if err := s.h.onUnlock(s.n); err != nil {
			return err
		}
	}
	return s.Session.Unlock(tag, mode)
}

// winOnLane returns a virtual session that has waited for the tag, and has it on a lane.
func (w *world) winOnLane(s *multiplex.Source, tag namespace.Tag) *multiplex.Session {
	w.Helper()
	other, _ := w.open(multiplex.Config{Lines: 1, Lanes: 1})
	foreign := w.take(other, tag)
	v := w.session(s, tag)
	done := w.wait(v, tag, session.Exclusive)
	require.NoError(w, foreign.UnlockAll())
	<-done
	return v
}

func TestACloseIsNotHeldUpByAnUnlockThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		h := &hooked{Source: w.server.Source("test")}
		s := multiplex.New(h, multiplex.Config{Lines: 1, Lanes: 1})
		mine := w.take(s, tagOf(2))   // session 0, the carrier
		v := w.winOnLane(s, tagOf(1)) // session 1
		closing := make(chan struct{})
		var once sync.Once
		h.onClose = func(n int) {
			if n == 0 {
				once.Do(func() { close(closing) })
				time.Sleep(time.Second)
			}
		}
		h.onUnlock = func(n int) error {
			<-closing
			return &session.LostError{Cause: errors.New("the server is shut down")}
		}
		go func() { _ = v.Unlock(tagOf(1), session.Exclusive) }()
		time.Sleep(time.Second)
		s.Close() // before it has come to the lane, its unlock fails
		require.ErrorIs(w, mine.UnlockAll(), session.ErrLost)
	})
}

func TestALookThatTheLossOfAnotherLockEndsIsALoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		h := &hooked{Source: w.server.Source("test")}
		s := multiplex.New(h, multiplex.Config{Lines: 1, Lanes: 1})
		v := w.winOnLane(s, tagOf(1)) // the turnstile
		time.Sleep(time.Second)       // the carrier is given back
		h.onAcquire = func() { time.Sleep(2 * time.Second) }
		ended := make(chan error, 1)
		go func() {
			_, err := v.TryAny([]namespace.Tag{tagOf(5)})
			ended <- err
		}()
		time.Sleep(time.Second)
		w.server.Kill(v.PID())
		require.ErrorIs(w, <-ended, session.ErrLost)
		v.Close()
		s.Close()
	})
}

// A late session's Kill waits for a Close that is under way.
type late struct {
	session.Session
	batch, closed chan struct{}
	stall         bool
}

type lateSource struct {
	session.Source
	last *late
}

func (l *lateSource) Acquire(ctx context.Context, tag namespace.Tag, deadline time.Time) (session.Session, error) {
	s, err := l.Source.Acquire(ctx, tag, deadline)
	if err != nil {
		return nil, err
	}
	l.last = &late{Session: s, batch: make(chan struct{}), closed: make(chan struct{})}
	return l.last, nil
}

func (s *late) Batch(ops []*session.Op, patience time.Duration) error {
	if s.stall {
		<-s.batch
	}
	return s.Session.Batch(ops, patience)
}

func (s *late) Kill(cause error) {
	<-s.closed
	time.Sleep(time.Millisecond)
	s.Session.Kill(cause)
}

func (s *late) Close() {
	s.Session.Close()
	close(s.closed)
}

func TestACloseReturnsWhenAllHaveBeenTold(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		h := &lateSource{Source: w.server.Source("test")}
		s := multiplex.New(h, multiplex.Config{Lines: 1, Lanes: 1})
		one, two := w.take(s, tagOf(1)), w.take(s, tagOf(2))
		told := make(chan time.Time, 1)
		two.Watch(func(error) { time.Sleep(time.Second); told <- time.Now() })
		time.Sleep(time.Second) // watched
		h.last.stall = true
		go func() { _ = one.Unlock(tagOf(1), session.Exclusive) }()
		time.Sleep(time.Millisecond)
		w.server.Kill(two.PID())
		time.Sleep(time.Millisecond)
		closed := make(chan time.Time, 1)
		go func() { s.Close(); closed <- time.Now() }()
		time.Sleep(time.Millisecond)
		close(h.last.batch)
		at, report := <-closed, <-told
		assert.False(w, at.Before(report), "Close returned %v before the report", report.Sub(at))
	})
}
