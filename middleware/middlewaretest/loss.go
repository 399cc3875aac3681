package middlewaretest

import (
	"context"
	"net/http"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
)

// lose ends the session of the only lock that r holds, and returns when the request's context has
// ended.
func (s *suite) lose(r replica, x Exchange) {
	held := slices.Collect(r.Held())
	if !assert.Len(s, held, 1) {
		return
	}
	s.db.Kill(held[0].PID)
	receive(s, x.Context.Done())
	lost, is := context.Cause(x.Context).(*advisory.LostError) //nolint:errorlint // it is the cause itself
	if assert.True(s, is, "%v", context.Cause(x.Context)) {
		assert.Equal(s, Agents.ID(42), lost.Key)
	}
}

var lossCases = []testCase{
	{name: "a lost lock ends the request's context, and the client is told", run: func(s *suite) {
		r := s.replica()
		lose := true
		server := s.serve(r.config(), func(x Exchange) string {
			if lose {
				s.lose(r, x)
			}
			return ""
		})
		// In gRPC it is not Unavailable: many clients resend such a call on their own.
		answer := s.refused(server, http.StatusServiceUnavailable, aborted, middleware.TypeLost)
		assert.Equal(s, s.f.RPC, answer.RetryAfter == 0, "nor is a RetryInfo in it")
		lose = false
		assert.Empty(s, s.served(server, "42").Text, "the control: the same answer with the lock kept")
	}},
	{name: "an answer that was begun before the loss stays", http: true, needs: Streams, run: func(s *suite) {
		r := s.replica()
		server := s.serve(r.config(), func(x Exchange) string {
			assert.NoError(s, x.Send("begun"))
			s.lose(r, x)
			return ""
		})
		assert.Equal(s, "begun", s.served(server, "42").Text)
	}},
	{
		name: "a text that was written after the loss stays", http: true, needs: Streams,
		run: func(s *suite) { assert.Equal(s, "written", s.served(s.writeAfterLoss(), "42").Text) },
		without: func(s *suite) {
			s.refused(s.writeAfterLoss(), http.StatusServiceUnavailable, aborted, middleware.TypeLost)
		},
	},
	{name: "a panic frees the lock and goes on", run: func(s *suite) {
		r := s.replica()
		panics := make(chan any, 1)
		broken := true
		server := s.f.Serve(s.T, Setup{
			Config: r.config(),
			Handler: func(Exchange) string {
				assert.Equal(s, 1, r.Stats().Held)
				if broken {
					panic("oops")
				}
				return "done"
			},
			Panicked: func(value any) {
				assert.Zero(s, r.Stats().Held, "the lock is free before others see the panic")
				panics <- value
			},
		})
		failed := receive(s, s.call(s.Context(), server, "42"))
		assert.True(s, failed.err != nil || failed.answer.Text == "", "%+v", failed.answer)
		require.Equal(s, "oops", receive(s, panics))
		broken = false
		assert.Equal(s, "done", s.served(server, "42").Text, "the control")
	}},
}

// writeAfterLoss serves a handler that loses its lock and answers.
func (s *suite) writeAfterLoss() Server {
	s.Helper()
	r := s.replica()
	return s.serve(r.config(), func(x Exchange) string {
		s.lose(r, x)
		return "written"
	})
}
