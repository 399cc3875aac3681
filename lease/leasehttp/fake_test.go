package leasehttp_test

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
)

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
