package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

const short = 100 * time.Millisecond

// A row refuses a request for agent 42 because of what prepare did.
type row struct {
	name    string
	prepare func(t *testing.T, l *advisory.Locker, c *middleware.Config)
	ctx     func(t *testing.T, l *advisory.Locker) context.Context // nil = the test's
	path    string                                                 // "" = /agents/42

	status     int
	kind       string
	retryAfter string
	check      func(t *testing.T, p middleware.ProblemError)
}

func held(t *testing.T, l *advisory.Locker, c *middleware.Config) {
	t.Helper()
	hold(t, l, agents.ID(42))
	c.Wait = short
}

func poolFull(t *testing.T, l *advisory.Locker, c *middleware.Config) {
	t.Helper()
	for i := range int64(2) {
		hold(t, l, agents.ID(100+i))
	}
	c.Wait = short
}

func keyError(err error) func(*testing.T, *advisory.Locker, *middleware.Config) {
	return func(_ *testing.T, _ *advisory.Locker, c *middleware.Config) {
		c.Key = func(*http.Request) (namespace.Key, error) { return namespace.Key{}, err }
	}
}

// A deadline is a context whose deadline passes when over is closed.
type deadline struct {
	context.Context
	over <-chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

var rows = []row{
	{
		name: "held until the wait ran out", prepare: held,
		status: 423, kind: middleware.TypeBusy, retryAfter: "1",
		check: func(t *testing.T, p middleware.ProblemError) {
			t.Helper()
			assert.Equal(t, "/agents/42", p.Instance)
			assert.Equal(t, "agent", p.Namespace)
			assert.Equal(t, "42", p.Entity)
			assert.EqualValues(t, 1000, p.RetryAfterMS)
			assert.Nil(t, p.Holder, "holders are not told unless asked to")
		},
	},
	{
		name: "held with skip",
		prepare: func(t *testing.T, l *advisory.Locker, c *middleware.Config) {
			t.Helper()
			held(t, l, c)
			c.Skip, c.Wait = true, advisory.NoTimeout
		},
		status: 423, kind: middleware.TypeBusy, retryAfter: "1",
	},
	{
		name: "held until the request's deadline",
		prepare: func(t *testing.T, l *advisory.Locker, c *middleware.Config) {
			t.Helper()
			held(t, l, c)
			c.Wait = advisory.NoTimeout
		},
		ctx: func(t *testing.T, l *advisory.Locker) context.Context {
			t.Helper()
			over := make(chan struct{})
			go func() {
				defer close(over)
				for t.Context().Err() == nil && l.Stats().Waiting == 0 {
					<-time.After(time.Millisecond)
				}
			}()
			return deadline{context.WithoutCancel(t.Context()), over}
		},
		status: 423, kind: middleware.TypeBusy, retryAfter: "1",
	},
	{
		name: "held with a status, a retry time and the holder",
		prepare: func(t *testing.T, l *advisory.Locker, c *middleware.Config) {
			t.Helper()
			held(t, l, c)
			c.BusyStatus, c.RetryAfter, c.ShowHolder = 409, 1500*time.Millisecond, true
		},
		status: 409, kind: middleware.TypeBusy, retryAfter: "2",
		check: func(t *testing.T, p middleware.ProblemError) {
			t.Helper()
			assert.EqualValues(t, 1500, p.RetryAfterMS)
			require.NotNil(t, p.Holder)
			assert.True(t, p.Holder.Local)
			assert.NotZero(t, p.Holder.PID)
			assert.Equal(t, "the-app", p.Holder.ApplicationName)
			assert.False(t, p.Holder.Since.IsZero())
		},
	},
	{name: "pool full until the wait ran out", prepare: poolFull, status: 503, kind: middleware.TypePool, retryAfter: "1"},
	{
		name: "pool full with skip",
		prepare: func(t *testing.T, l *advisory.Locker, c *middleware.Config) {
			t.Helper()
			poolFull(t, l, c)
			c.Skip = true
		},
		status: 503, kind: middleware.TypePool, retryAfter: "1",
	},
	{
		name:    "closed Locker",
		prepare: func(_ *testing.T, l *advisory.Locker, _ *middleware.Config) { l.Close() },
		status:  503, kind: middleware.TypeUnavailable, retryAfter: "1",
	},
	{
		name: "deadline over before the lock was asked for",
		ctx: func(t *testing.T, _ *advisory.Locker) context.Context {
			t.Helper()
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			t.Cleanup(cancel)
			return ctx
		},
		status: 503, kind: middleware.TypeUnavailable, retryAfter: "1",
	},
	{
		name: "context ended by the program",
		ctx: func(t *testing.T, _ *advisory.Locker) context.Context {
			t.Helper()
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errors.New("shutting down"))
			return ctx
		},
		status: 503, kind: middleware.TypeUnavailable, retryAfter: "1",
	},
	{
		name: "re-entrant",
		ctx: func(t *testing.T, l *advisory.Locker) context.Context {
			t.Helper()
			return hold(t, l, agents.ID(42)).Context()
		},
		status: 500, kind: middleware.TypeMisuse,
	},
	{name: "no entity", prepare: keyError(nil), status: 400, kind: middleware.TypeNoEntity},
	{name: "entity that names no lock", path: "/agents/%00", status: 400, kind: middleware.TypeNoEntity},
	{
		name:    "entity not found by the extractor",
		prepare: keyError(&middleware.RequestError{Status: 404, Title: "No such agent", Detail: "Agent 42 has ended."}),
		status:  404, kind: "about:blank",
		check: func(t *testing.T, p middleware.ProblemError) {
			t.Helper()
			assert.Equal(t, "No such agent", p.Title)
			assert.Equal(t, "Agent 42 has ended.", p.Detail)
			assert.Empty(t, p.Entity)
		},
	},
	{name: "extractor's status makes no sense", prepare: keyError(&middleware.RequestError{Status: 200}), status: 500, kind: "about:blank"},
	{name: "extractor failed", prepare: keyError(errors.New("the secret table is missing")), status: 500, kind: "about:blank"},
}

func TestEveryErrorHasItsAnswer(t *testing.T) {
	t.Parallel()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for name, build := range stacks {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					l := open(t, advisory.Config{DSN: pgtest.DSN(t), MaxConns: 2, ApplicationName: "the-app"})
					c := byPath(l)
					var log bytes.Buffer
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
					if row.prepare != nil {
						row.prepare(t, l, &c)
					}
					ctx := t.Context()
					if row.ctx != nil {
						ctx = row.ctx(t, l)
					}
					before := l.Stats().Held
					path := row.path
					if path == "" {
						path = "/agents/42"
					}
					rec := post(ctx, build(t, c, func(http.ResponseWriter, *http.Request) { assert.Fail(t, "the handler ran") }), path)

					require.Equal(t, row.status, rec.Code, rec.Body)
					p := problem(t, rec)
					assert.Equal(t, row.kind, p.Type)
					assert.Equal(t, row.retryAfter, rec.Header().Get("Retry-After"))
					assert.Contains(t, rec.Body.String(), `"holder":`, "null or an object, never missing")
					assert.NotContains(t, rec.Body.String(), "secret")
					assert.Equal(t, row.status >= 500, strings.Contains(log.String(), `msg="request refused"`), "what clients are not told is logged")
					if row.check != nil {
						row.check(t, p)
					}
					assert.Equal(t, before, l.Stats().Held, "the request holds nothing")
				})
			}
		})
	}
}

func TestPostgreSQLThatStoppedIsUnavailable(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	c := byPath(open(t, advisory.Config{DSN: server.DSN("")}))
	require.Equal(t, http.StatusNoContent, post(t.Context(), stacks["net_http"](t, c, ok), "/agents/42").Code, "control")
	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	c.Wait = time.Second
	rec := post(t.Context(), stacks["net_http"](t, c, ok), "/agents/42")
	require.Equal(t, http.StatusServiceUnavailable, rec.Code, rec.Body)
	assert.Equal(t, middleware.TypeUnavailable, problem(t, rec).Type)
	assert.Equal(t, "1", rec.Header().Get("Retry-After"))
}

func TestACycleOfRequestsIsRefused(t *testing.T) {
	t.Parallel()
	waiting := make(waits, 1)
	l := open(t, advisory.Config{DSN: pgtest.DSN(t), Tracer: waiting.tracer()})
	entered := make(chan struct{}, 2)
	nested := make(chan int, 1)
	var h http.Handler
	h = stacks["net_http"](t, byPath(l), func(w http.ResponseWriter, r *http.Request) {
		if entered <- struct{}{}; r.PathValue("id") == "1" { // 1 wants 2 as well, and waits for it
			nested <- post(r.Context(), h, "/agents/2").Code
		}
		ok(w, r)
	})
	two := hold(t, l, agents.ID(2))
	code := make(chan int, 1)
	go func() { code <- post(t.Context(), h, "/agents/1").Code }()
	receive(t, waiting)

	rec := post(two.Context(), h, "/agents/1") // the holder of 2 wants 1
	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.Equal(t, middleware.TypeMisuse, problem(t, rec).Type)
	require.NoError(t, two.Release())
	assert.Equal(t, http.StatusNoContent, receive(t, nested))
	assert.Equal(t, http.StatusNoContent, receive(t, code))
}

func TestTheWaitIsTold(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := build(t, byPath(open(t, advisory.Config{DSN: pgtest.DSN(t)})), ok)
			assert.Regexp(t, `^lock;dur=\d+\.\d$`, post(t.Context(), h, "/agents/42").Header().Get("Server-Timing"))
		})
	}
}
