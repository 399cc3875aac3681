package middlewaretest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Run runs the conformance suite as parallel subtests of t.
func Run(t *testing.T, f Framework) { //nolint:thelper // it is the test
	require.NotNil(t, f.Serve, "middlewaretest: Framework.Serve")
	f.Timeout = cmp.Or(f.Timeout, time.Minute)
	if f.Database == nil {
		f.Database = memory
	}
	for _, c := range slices.Concat(orderCases, answerCases, lossCases, clientCases, pathCases, streamCases) {
		name := c.name
		reason, lacks := f.Without[c.needs]
		switch {
		case lacks && c.without == nil:
			t.Run("WITHOUT "+string(c.needs)+": "+name, func(t *testing.T) { t.Log(reason) })
			continue
		case lacks:
			name, c.run = "WITHOUT "+string(c.needs)+": "+name, c.without
		case f.RPC && c.http || !f.RPC && c.rpc:
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(&suite{T: t, f: f, db: f.Database(t)})
		})
	}
}

// A testCase is one property.
type testCase struct {
	name  string
	run   func(s *suite)
	http  bool    // it is about HTTP
	rpc   bool    // it is about RPC
	needs Ability // "" = none
	// without checks that the ability is lacking. nil = that cannot be observed.
	without func(s *suite)
}

// A suite is one running test case.
type suite struct {
	*testing.T
	f  Framework
	db Database
}

// A replica is one process of a program: a Locker, and the events of its requests.
type replica struct {
	*advisory.Locker
	waits chan namespace.Key // a request has begun to wait
	fails chan error         // a request ended without the lock
}

func (s *suite) replica() replica {
	s.Helper()
	r := replica{waits: make(chan namespace.Key, 100), fails: make(chan error, 100)}
	c := advisory.Config{Tracer: advisory.Tracer{
		Wait: func(_ context.Context, d advisory.WaitData) { r.waits <- d.Key },
		Acquire: func(_ context.Context, d advisory.AcquireData) {
			if d.Err != nil {
				r.fails <- d.Err
			}
		},
	}}
	var err error
	r.Locker, err = s.db.Open(c)
	require.NoError(s, err)
	s.Cleanup(r.Close)
	return r
}

// config is the Config for a server of the suite.
func (r replica) config() middleware.Config {
	return middleware.Config{Locker: r.Locker, Key: middleware.PathValue(Agents, "id")}
}

func (s *suite) serve(c middleware.Config, h Handler) Server {
	s.Helper()
	return s.f.Serve(s.T, Setup{Config: c, Handler: h, Panicked: func(any) {}})
}

// failing is serve with an extractor that fails.
func (s *suite) failing(c middleware.Config, err error, h Handler) Server {
	s.Helper()
	c.Key = func(*http.Request) (namespace.Key, error) { return namespace.Key{}, err }
	return s.f.Serve(s.T, Setup{Config: c, Handler: h, Panicked: func(any) {}, keyErr: err})
}

// hold takes the lock on agent 42 until the test ends.
func (s *suite) hold(r replica) *advisory.Lock {
	s.Helper()
	lock, err := r.Acquire(s.Context(), Agents.ID(42))
	require.NoError(s, err)
	s.Cleanup(func() { _ = lock.Release() })
	return lock
}

// A result is how a call ended.
type result struct {
	answer Answer
	err    error
}

// call sends a request from a new client.
func (s *suite) call(ctx context.Context, server Server, id string) <-chan result {
	results := make(chan result, 1)
	go func() {
		answer, err := server.Call(ctx, id)
		results <- result{answer, err}
	}()
	return results
}

// served checks that a request for an agent is answered by the handler.
func (s *suite) served(server Server, id string) Answer {
	s.Helper()
	r := receive(s, s.call(s.Context(), server, id))
	require.NoError(s, r.err)
	require.Equal(s, s.status(http.StatusOK, 0), r.answer.Status, "%+v", r.answer)
	return r.answer
}

// refused checks that a request for agent 42 is refused, with an HTTP status or a gRPC code.
func (s *suite) refused(server Server, status, code int, kind string) Answer {
	s.Helper()
	r := receive(s, s.call(s.Context(), server, "42"))
	require.NoError(s, r.err)
	require.Equal(s, s.status(status, code), r.answer.Status, "%+v", r.answer)
	require.Equal(s, kind, r.answer.Type)
	return r.answer
}

func (s *suite) status(http, rpc int) int {
	if s.f.RPC {
		return rpc
	}
	return http
}

// receive waits for an event.
func receive[T any](s *suite, events <-chan T) (v T) {
	s.Helper()
	select {
	case v = <-events:
	case <-time.After(s.f.Timeout):
		require.Fail(s, "the event did not come")
	}
	return v
}

func hello(Exchange) string { return "hello" }
