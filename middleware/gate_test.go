package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

// database is a PostgreSQL for the conformance suite.
func database(t *testing.T) middlewaretest.Database {
	t.Helper()
	dsn := pgtest.DSN(t)
	return middlewaretest.Database{
		Open: func(c advisory.Config) (*advisory.Locker, error) {
			c.DSN = dsn
			return advisory.Open(t.Context(), c)
		},
		Kill: func(pid uint32) {
			conn, err := pgx.Connect(t.Context(), dsn)
			if assert.NoError(t, err) {
				defer conn.Close(context.WithoutCancel(t.Context()))
				_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int64(pid))
				assert.NoError(t, err)
			}
		},
	}
}

func serveMux(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/agents/{id}", middleware.Must(s.Config)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handle(w, r, r.PathValue("id"))
	})))
	return s.HTTP(t, mux)
}

func TestNetHTTPConformsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serveMux, Database: database})
}

func TestNetHTTPConforms(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serveMux})
}

// direct is an RPC framework without a network: clients call the gate.
func direct(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	g, err := middleware.NewGate(s.Config)
	require.NoError(t, err)
	entity := middleware.Entity(middlewaretest.Agents, "id")
	return middlewaretest.Server{Call: func(ctx context.Context, id string) (a middlewaretest.Answer, err error) {
		defer func() {
			if value := recover(); value != nil {
				s.Panicked(value)
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		key, err := s.Key(entity(id))
		err = g.Do(ctx, key, err, func(ctx context.Context) error {
			a.Text = s.Handler(middlewaretest.Exchange{Context: ctx, ID: id})
			return nil
		})
		if p, ok := errors.AsType[*middleware.ProblemError](err); ok {
			a = middlewaretest.Answer{Status: int(p.Code()), Type: p.Type, RetryAfter: p.Retry()}
			if p.Holder != nil {
				a.HolderPID = p.Holder.PID
			}
			return a, nil
		}
		if err == nil {
			err = ctx.Err() // nobody is there
		}
		return a, err
	}}
}

func TestAGateConformsWithoutNetHTTPOnPostgreSQL(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{
		Serve: direct, RPC: true, Database: database,
		Without: map[middlewaretest.Ability]string{middlewaretest.Streams: "a call of a function has one result"},
	})
}

func TestAGateReturnsWhatItsFunctionReturned(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := open(t, advisory.Config{DSN: dsn})
	g, err := middleware.NewGate(middleware.Config{Locker: l})
	require.NoError(t, err)
	failed := errors.New("failed")
	err = g.Do(t.Context(), agents.ID(42), nil, func(context.Context) error { return failed })
	assert.Equal(t, failed, err)

	err = g.Do(t.Context(), agents.ID(42), nil, func(ctx context.Context) error {
		terminate(t, dsn, l)
		receive(t, ctx.Done())
		return failed
	})
	require.ErrorIs(t, err, advisory.ErrLost)
	require.ErrorIs(t, err, failed, "the program gets both")
	p, ok := errors.AsType[*middleware.ProblemError](err)
	require.True(t, ok)
	assert.Equal(t, middleware.TypeLost, p.Type)
	assert.NotContains(t, string(p.Body()), "failed")
}

func TestABadConfigIsRefusedByName(t *testing.T) {
	t.Parallel()
	good := byPath(new(advisory.Locker))
	for field, spoil := range map[string]func(*middleware.Config){
		"Locker":     func(c *middleware.Config) { c.Locker = nil },
		"Key":        func(c *middleware.Config) { c.Key = nil },
		"Wait":       func(c *middleware.Config) { c.Wait = -time.Second },
		"BusyStatus": func(c *middleware.Config) { c.BusyStatus = 200 },
		"RetryAfter": func(c *middleware.Config) { c.RetryAfter = -1 },
	} {
		c := good
		spoil(&c)
		_, err := middleware.New(c)
		require.ErrorContains(t, err, "middleware: "+field+" is ")
		var wrong *middleware.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
		assert.PanicsWithError(t, err.Error(), func() { middleware.Must(c) })

		ec := echoConfig(c)
		if c.Key == nil {
			ec.Key = nil
		}
		_, err = ec.ToMiddleware()
		require.ErrorContains(t, err, "middleware: "+field+" is ")
		assert.PanicsWithError(t, err.Error(), func() { echov4.LockWithConfig(ec) })
	}
	assert.Panics(t, func() { echov4.Lock(nil, agents) })
	assert.Panics(t, func() { echov4.Lock(good.Locker, namespace.Namespace{}) })
	assert.Panics(t, func() { middleware.PathValue(namespace.Namespace{}, "id") })
}

func TestEchoSkipperLetsRequestsPass(t *testing.T) {
	t.Parallel()
	l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
	hold(t, l, agents.ID(42))
	c := echov4.DefaultLockConfig
	c.Locker, c.Skip = l, true
	c.Key = echov4.Param(agents, "id")
	skipping := c
	skipping.Skipper = func(c echo.Context) bool { return c.Param("id") == "42" }
	e := echo.New()
	handler := echo.WrapHandler(http.HandlerFunc(ok))
	e.POST("/locked/:id", handler, echov4.LockWithConfig(c))
	e.POST("/skipped/:id", handler, echov4.LockWithConfig(skipping))
	assert.Equal(t, http.StatusLocked, post(t.Context(), e, "/locked/42").Code)
	assert.Equal(t, http.StatusNoContent, post(t.Context(), e, "/skipped/42").Code)
}

// overstay is a handler that goes on after its timeout until it is let go.
func overstay(began chan<- struct{}, end <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-end
	})
}

// skipping is a lock on one key that does not wait.
func skipping(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	return middleware.Must(middleware.Config{Locker: locker, Skip: true, Key: func(*http.Request) (namespace.Key, error) {
		return agents.ID(42), nil
	}})
}

// answer is the status of one request.
func answer(t *testing.T, h http.Handler) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	return w.Code
}

// In a bubble the time is not over before the handler waits.
func TestTheLockIsHeldUntilAHandlerThatIsOverItsTimeHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}, 1), make(chan struct{})
		lock := skipping(t)
		h := http.TimeoutHandler(lock(overstay(began, end)), time.Millisecond, "")
		assert.Equal(t, http.StatusServiceUnavailable, answer(t, h))
		<-began
		second := lock(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "it runs beside the first") }))
		assert.Equal(t, http.StatusLocked, answer(t, second))
		close(end)
	})
}

func TestATimeoutInsideTheLockIsRefusedAtWiring(t *testing.T) {
	t.Parallel()
	lock := skipping(t)
	assert.PanicsWithValue(t, "middleware: the lock is around an http.TimeoutHandler, which returns while its handler runs on, without the lock: "+
		"put it outside, as in http.TimeoutHandler(lock(handler), …)", func() { lock(http.TimeoutHandler(http.NotFoundHandler(), time.Second, "")) })
}

// What the refusal is for: behind another handler it is not found, and two handlers run.
func TestATimeoutInsideTheLockLetsTwoHandlersRunControl(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, end := make(chan struct{}, 2), make(chan struct{})
		defer close(end)
		timeout := http.TimeoutHandler(overstay(began, end), time.Millisecond, "")
		h := skipping(t)(http.HandlerFunc(timeout.ServeHTTP))
		for range 2 {
			assert.Equal(t, http.StatusServiceUnavailable, answer(t, h))
		}
		<-began
		<-began
	})
}

func TestTheTypesOfProblemsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "problems", append(frozen.Constants(t, ".", "Type[A-Z].*"), frozen.Constants(t, "../internal/problem", "TypeBase|MediaType")...))
}
