package middlewaretest

import (
	"errors"
	"net/http"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
)

// Codes of gRPC; see middleware.ProblemError.Code.
const (
	notFound    = 5
	aborted     = 10
	internal    = 13
	unavailable = 14
)

// never is the handler of requests that are refused.
func never(s *suite) Handler {
	return func(Exchange) string {
		assert.Fail(s, "the handler ran")
		return ""
	}
}

var answerCases = []testCase{
	{name: "a busy entity is told with who holds it and when to try again", run: func(s *suite) {
		lock := s.hold(s.replica())
		c := s.replica().config()
		c.Skip, c.ShowHolder, c.RetryAfter = true, true, 2*time.Second
		server := s.serve(c, never(s))
		answer := s.refused(server, http.StatusLocked, aborted, middleware.TypeBusy)
		assert.Equal(s, 2*time.Second, answer.RetryAfter)
		for end := time.Now().Add(s.f.Timeout); answer.HolderPID == 0 && time.Now().Before(end); { // a busy server may not name the holder in time
			answer = s.refused(server, http.StatusLocked, aborted, middleware.TypeBusy)
		}
		assert.Equal(s, lock.PID(), answer.HolderPID)

		c.ShowHolder = false
		server = s.serve(c, hello)
		answer = s.refused(server, http.StatusLocked, aborted, middleware.TypeBusy)
		assert.Zero(s, answer.HolderPID, "holders are not told unless asked to")
		require.NoError(s, lock.Release())
		s.served(server, "42") // the control
	}},
	{name: "a wait that runs out is told as busy", run: func(s *suite) {
		r := s.replica()
		s.hold(r)
		c := r.config() // a busy server may not name a holder in another replica in time
		c.Wait = 50 * time.Millisecond
		answer := s.refused(s.serve(c, never(s)), http.StatusLocked, aborted, middleware.TypeBusy)
		assert.Equal(s, time.Second, answer.RetryAfter)
	}},
	{name: "a database that is away is told as unavailable", run: func(s *suite) {
		r := s.replica()
		server := s.serve(r.config(), never(s))
		r.Close()
		answer := s.refused(server, http.StatusServiceUnavailable, unavailable, middleware.TypeUnavailable)
		assert.Equal(s, time.Second, answer.RetryAfter)
	}},
	{name: "an extractor's answer is told, and its failure is not", run: func(s *suite) {
		for err, want := range map[error][2]int{
			&middleware.RequestError{Status: http.StatusNotFound}: {http.StatusNotFound, notFound},
			errors.New("a secret"):                                {http.StatusInternalServerError, internal},
		} {
			server := s.failing(s.replica().config(), err, never(s))
			answer := s.refused(server, want[0], want[1], "about:blank")
			assert.Zero(s, answer.RetryAfter)
			assert.NotContains(s, answer.Text, "secret")
		}
	}},
	{name: "a request that needs no lock runs without", run: func(s *suite) {
		r := s.replica()
		s.served(s.failing(r.config(), middleware.ErrNoLock, func(Exchange) string {
			assert.Zero(s, r.Stats().Held)
			return "done"
		}), "42")
	}},
	{name: "a safe method passes, unless it is to be locked", http: true, run: func(s *suite) {
		r := s.replica()
		s.hold(r)
		c := r.config()
		c.Skip = true
		assert.Equal(s, http.StatusOK, s.get(s.serve(c, hello), "/agents/42"))
		c.LockSafeMethods = true
		assert.Equal(s, http.StatusLocked, s.get(s.serve(c, never(s)), "/agents/42"))
	}},
	{name: "an ErrorHandler answers in the middleware's place", http: true, needs: ErrorHandlers, run: func(s *suite) {
		r := s.replica()
		s.hold(r)
		c := r.config()
		c.Skip = true
		c.ErrorHandler = func(w http.ResponseWriter, r *http.Request, p *middleware.ProblemError) {
			assert.Equal(s, "/agents/42", r.URL.Path)
			assert.ErrorIs(s, p, advisory.ErrHeld)
			p.Type = "mine"
			p.Respond(w)
		}
		s.refused(s.serve(c, never(s)), http.StatusLocked, aborted, "mine")
	}},
}
