package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/namespace"
)

// loseLock ends the session of the request's lock, and returns when the request's
// context has ended.
func loseLock(t *testing.T, dsn string, l *advisory.Locker, r *http.Request) {
	t.Helper()
	terminate(t, dsn, l)
	receive(t, r.Context().Done())
	lost, is := context.Cause(r.Context()).(*advisory.LostError) //nolint:errorlint // it is the cause itself
	if assert.True(t, is, context.Cause(r.Context())) {
		assert.Equal(t, agents.ID(42), lost.Key)
	}
}

func TestALostLockEndsTheRequest(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer func(w http.ResponseWriter)
		status int
		body   string
	}{
		"nothing written":         {func(http.ResponseWriter) {}, http.StatusServiceUnavailable, ""},
		"only headers set":        {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "3") }, http.StatusServiceUnavailable, ""},
		"status written":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }, http.StatusAccepted, ""},
		"body written":            {func(w http.ResponseWriter) { w.Write([]byte("yes")) }, http.StatusOK, "yes"},
		"flushed":                 {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, http.StatusOK, ""},
		"flushed by a controller": {func(w http.ResponseWriter) { http.NewResponseController(w).Flush() }, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, build := range stacks {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					dsn := pgtest.DSN(t)
					l := open(t, advisory.Config{DSN: dsn})
					h := build(t, byPath(l), func(w http.ResponseWriter, r *http.Request) {
						loseLock(t, dsn, l, r)
						row.answer(w)
					})
					rec := post(t.Context(), h, "/agents/42")
					require.Equal(t, row.status, rec.Code, rec.Body)
					if row.status == http.StatusServiceUnavailable {
						assert.Equal(t, middleware.TypeLost, problem(t, rec).Type)
						assert.Empty(t, rec.Header().Get("Content-Length"))
					} else {
						assert.Equal(t, row.body, rec.Body.String())
					}
					hold(t, l, agents.ID(42)) // the key is free again
				})
			}
		})
	}
}

func TestTheLossOfAnOuterLockIsToldByTheInner(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	other, waiting := open(t, advisory.Config{DSN: dsn}), make(waits, 1)
	l := open(t, advisory.Config{DSN: dsn, Tracer: waiting.tracer()})
	hold(t, other, agents.ID(43))
	inner := byPath(l)
	inner.Key = func(*http.Request) (namespace.Key, error) { return agents.ID(43), nil }
	h := stacks["net_http"](t, byPath(l), middleware.Must(inner)(http.HandlerFunc(ok)).ServeHTTP)
	recs := make(chan *httptest.ResponseRecorder, 1)
	go func() { recs <- post(t.Context(), h, "/agents/42") }()
	receive(t, waiting)
	terminate(t, dsn, l)
	assert.Equal(t, middleware.TypeLost, problem(t, receive(t, recs)).Type)
}

// A silent client must find nothing written: neither by the middleware nor, after
// a plain return, by the server.
func TestAClientThatHasGoneGetsNothing(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waiting := make(waits, 1)
			l := open(t, advisory.Config{DSN: pgtest.DSN(t), Tracer: waiting.tracer()})
			lock := hold(t, l, agents.ID(42))
			h := build(t, byPath(l), ok)
			type end struct {
				panicked any
				wrote    bool
			}
			ends := make(chan end, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				spy := &spyWriter{ResponseWriter: w}
				defer func() {
					p := recover()
					ends <- end{p, spy.wrote}
					if p != nil {
						panic(p)
					}
				}()
				h.ServeHTTP(spy, r)
			}))
			defer server.Close()

			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/agents/42", nil)
			require.NoError(t, err)
			answered := make(chan error, 1)
			go func() {
				resp, err := server.Client().Do(req)
				if err == nil {
					resp.Body.Close()
				}
				answered <- err
			}()
			receive(t, waiting)
			leave()
			require.ErrorIs(t, receive(t, answered), context.Canceled)
			assert.Equal(t, end{http.ErrAbortHandler, false}, receive(t, ends))

			require.NoError(t, lock.Release())
			resp, err := server.Client().Post(server.URL+"/agents/42", "", nil)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, http.StatusNoContent, resp.StatusCode, "control: a client that stays")
			assert.Equal(t, end{nil, true}, receive(t, ends))
		})
	}
}

func TestACanceledRequestOutsideAServerReturns(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			leave()
			spy := &spyWriter{ResponseWriter: httptest.NewRecorder()}
			h := build(t, byPath(open(t, advisory.Config{DSN: pgtest.DSN(t)})), ok)
			h.ServeHTTP(spy, httptest.NewRequestWithContext(ctx, http.MethodPost, "/agents/42", nil))
			assert.False(t, spy.wrote)
		})
	}
}

type spyWriter struct {
	http.ResponseWriter
	wrote bool
}

func (w *spyWriter) WriteHeader(status int) { w.wrote = true; w.ResponseWriter.WriteHeader(status) }

func (w *spyWriter) Write(b []byte) (int, error) { w.wrote = true; return w.ResponseWriter.Write(b) }

func TestEchoHandlersErrorsGoToEcho(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := open(t, advisory.Config{DSN: dsn})
	e := echo.New()
	lose := false
	e.POST("/agents/:id", func(c echo.Context) error {
		if lose {
			loseLock(t, dsn, l, c.Request())
		}
		return echo.NewHTTPError(http.StatusTeapot)
	}, echov4.Lock(l, agents))
	var seen error
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		seen = err
		assert.NoError(t, c.Request().Context().Err(), "the request outside the lock is the one before")
		e.DefaultHTTPErrorHandler(err, c)
	}
	assert.Equal(t, http.StatusTeapot, post(t.Context(), e, "/agents/42").Code)
	lose = true
	assert.Equal(t, middleware.TypeLost, problem(t, post(t.Context(), e, "/agents/42")).Type)
	assert.ErrorContains(t, seen, "418")
}
