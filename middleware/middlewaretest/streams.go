package middlewaretest

import (
	"io"
	"net/http"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/middleware"
)

var streamCases = []testCase{
	{name: "what a handler sends arrives while the lock is held", needs: Streams, run: func(s *suite) {
		r := s.replica()
		proceed := make(chan struct{})
		server := s.serve(r.config(), func(x Exchange) string {
			for _, part := range []string{"a", "b"} {
				assert.NoError(s, x.Send(part))
				receive(s, proceed)
			}
			return ""
		})
		next, err := server.Stream(s.Context(), "42")
		require.NoError(s, err)
		for _, part := range []string{"a", "b"} {
			text, end := next()
			require.Nil(s, end)
			require.Equal(s, part, text)
			assert.Equal(s, 1, r.Stats().Held)
			proceed <- struct{}{}
		}
		_, end := next()
		require.NotNil(s, end)
		assert.Equal(s, s.status(200, 0), end.Status)
		assert.Zero(s, r.Stats().Held)
	}},
	{name: "a stream whose entity is busy is refused", needs: Streams, run: func(s *suite) {
		r := s.replica()
		s.hold(r)
		c := r.config()
		c.Skip = true
		next, err := s.serve(c, never(s)).Stream(s.Context(), "42")
		require.NoError(s, err)
		_, end := next()
		require.NotNil(s, end)
		assert.Equal(s, middleware.TypeBusy, end.Type)
		assert.Equal(s, s.status(423, aborted), end.Status)
	}},
	{name: "the end of a stream tells of a loss", rpc: true, needs: Streams, run: func(s *suite) {
		r := s.replica()
		server := s.serve(r.config(), func(x Exchange) string {
			assert.NoError(s, x.Send("begun"))
			s.lose(r, x)
			return ""
		})
		next, err := server.Stream(s.Context(), "42")
		require.NoError(s, err)
		text, end := next()
		require.Nil(s, end)
		assert.Equal(s, "begun", text)
		_, end = next()
		require.NotNil(s, end)
		assert.Equal(s, aborted, end.Status)
		assert.Equal(s, middleware.TypeLost, end.Type)
	}},
	{name: "a connection that was taken over is left alone after a loss", http: true, needs: Hijacks, run: func(s *suite) {
		r := s.replica()
		c := r.config()
		if _, lacks := s.f.Without[ErrorHandlers]; !lacks {
			c.ErrorHandler = func(http.ResponseWriter, *http.Request, *middleware.ProblemError) {
				assert.Fail(s, "it is answered twice")
			}
		}
		server := s.serve(c, func(x Exchange) string {
			conn, err := x.Hijack()
			if !assert.NoError(s, err) {
				return ""
			}
			defer func() { _ = conn.Close() }()
			s.lose(r, x)
			_, err = io.WriteString(conn, "HTTP/1.1 299 Mine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			assert.NoError(s, err)
			return ""
		})
		answer, err := server.Call(s.Context(), "42")
		require.NoError(s, err)
		assert.Equal(s, 299, answer.Status)
	}},
}
