package leasehttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/pglatch/pglatch/lease"
)

// A spy counts what a store is asked, and answers with its error if it has one.
type spy struct {
	lease.Store
	acquires atomic.Int64
	err      error
	before   func() // an acquire; nil = nothing
	after    func() // an acquire; nil = nothing
}

func (s *spy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	s.acquires.Add(1)
	if s.before != nil {
		s.before()
	}
	if s.err != nil {
		return lease.Lease{}, s.err
	}
	l, err := s.Store.Acquire(ctx, r)
	if s.after != nil {
		s.after()
	}
	return l, err
}

var errLostAnswer = errors.New("the answer was lost")

// A lossy transport loses answers of requests that were carried out.
type lossy struct {
	http.RoundTripper
	mu    sync.Mutex
	lose  int         // of the next answers
	twice bool        // deliver every request two times
	then  func()      // after the loss of an answer; nil = nothing
	sent  []string    // paths
	gone  atomic.Bool // nothing arrives any more
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.gone.Load() {
		return nil, errLostAnswer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, r.URL.Path)
	if l.twice {
		again := r.Clone(r.Context())
		again.Body, _ = r.GetBody()
		if response, err := l.RoundTripper.RoundTrip(again); err == nil {
			_ = response.Body.Close()
		}
	}
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || l.lose == 0 {
		return response, err
	}
	l.lose--
	_ = response.Body.Close()
	if l.then != nil {
		l.then()
	}
	return nil, errLostAnswer
}

func (l *lossy) CloseIdleConnections() {
	if t, ok := l.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
