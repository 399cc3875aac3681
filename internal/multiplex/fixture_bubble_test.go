package multiplex_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/multiplex"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A world is a server and the Sources on it, in a bubble.
type world struct {
	*testing.T
	server *advisorytest.Server
}

func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&world{t, advisorytest.NewServer()}) })
}

// open returns the Source of one more process.
func (w *world) open(config multiplex.Config) (*multiplex.Source, *stalling) {
	w.Helper()
	inner := &stalling{Source: w.server.Source("test")}
	s := multiplex.New(inner, config)
	w.Cleanup(s.Close)
	return s, inner
}

// session returns a virtual session for the tag.
func (w *world) session(s *multiplex.Source, tag namespace.Tag) *multiplex.Session {
	w.Helper()
	v, err := s.Acquire(w.Context(), tag, time.Time{})
	require.NoError(w, err)
	return v.(*multiplex.Session)
}

// take returns a virtual session that holds the tag.
func (w *world) take(s *multiplex.Source, tag namespace.Tag) *multiplex.Session {
	w.Helper()
	v := w.session(s, tag)
	held, err := v.Try(tag, session.Exclusive)
	require.NoError(w, err)
	require.True(w, held)
	return v
}

func tagOf(i int) namespace.Tag { return namespace.Must(1, "agent").ID(int64(i)).Tag() }

func keyOf(i int) namespace.Key { return namespace.Must(1, "agent").ID(int64(i)) }

// A stalling source has sessions whose batches can be made to wait for their
// answer, which the server has given by then.
type stalling struct {
	session.Source
	mu    sync.Mutex
	gate  chan struct{} // nil = answers come at once
	fail  error         // of Acquire
	dials []time.Time
}

func (s *stalling) stall() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(gate)
	}
}

func (s *stalling) Acquire(ctx context.Context, tag namespace.Tag, deadline time.Time) (session.Session, error) {
	s.mu.Lock()
	s.dials = append(s.dials, time.Now())
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	inner, err := s.Source.Acquire(ctx, tag, deadline)
	if err != nil {
		return nil, err
	}
	return &stallingSession{Session: inner, source: s}, nil
}

type stallingSession struct {
	session.Session
	source  *stalling
	gate    chan struct{}
	pending error
}

var errTwice = errors.New("BUG: a batch during a batch")

func (s *stallingSession) Batch(ops []*session.Op, patience time.Duration) error {
	if s.gate != nil {
		return errTwice
	}
	err := s.Session.Batch(ops, patience)
	s.source.mu.Lock()
	s.gate, s.pending = s.source.gate, err
	s.source.mu.Unlock()
	if s.gate == nil {
		return err
	}
	select {
	case <-s.gate:
		s.gate = nil
		return err
	case <-time.After(patience):
		return session.ErrPending
	}
}

func (s *stallingSession) Resume() error {
	<-s.gate
	s.gate = nil
	return s.pending
}
