package middleware_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var agents = namespace.Must(1, "agent")

// long bounds waits for events on a slow and busy machine.
const long = time.Minute

func open(t *testing.T, config advisory.Config) *advisory.Locker {
	t.Helper()
	l, err := advisory.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// waits is a Tracer that passes on when a request begins to wait.
type waits chan namespace.Key

func (w waits) tracer() advisory.Tracer {
	return advisory.Tracer{Wait: func(_ context.Context, d advisory.WaitData) { w <- d.Key }}
}

// receive waits for an event.
func receive[T any](t *testing.T, events <-chan T) T {
	t.Helper()
	return await.Receive(t, long, events, "the event did not come")
}

// hold takes the lock on a key until the test ends, and returns the handle.
func hold(t *testing.T, l *advisory.Locker, key namespace.Key) *advisory.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Release() })
	return lock
}

// terminate ends the server session of the only lock that a Locker holds.
func terminate(t *testing.T, dsn string, l *advisory.Locker) {
	t.Helper()
	held := slices.Collect(l.Held())
	require.Len(t, held, 1)
	var ended bool
	require.NoError(t, pgtest.Connect(t, dsn).QueryRow(t.Context(), "SELECT pg_terminate_backend($1)", held[0].PID).Scan(&ended))
	require.True(t, ended)
}

// A stack serves "/agents/{id}" through the middleware, with one of the routers.
type stack func(t *testing.T, c middleware.Config, handler http.HandlerFunc) http.Handler

var stacks = map[string]stack{
	"net_http": func(t *testing.T, c middleware.Config, handler http.HandlerFunc) http.Handler {
		t.Helper()
		lock, err := middleware.New(c)
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("/agents/{id}", lock(handler))
		return mux
	},
	"chi": func(t *testing.T, c middleware.Config, handler http.HandlerFunc) http.Handler {
		t.Helper()
		lock, err := middleware.New(c)
		require.NoError(t, err)
		routed := lock(handler)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as chi's With does
			r.SetPathValue("id", strings.TrimPrefix(r.URL.Path, "/agents/"))
			routed.ServeHTTP(w, r)
		})
	},
	"echo": func(t *testing.T, c middleware.Config, handler http.HandlerFunc) http.Handler {
		t.Helper()
		lock, err := echoConfig(c).ToMiddleware()
		require.NoError(t, err)
		e := echo.New()
		e.Any("/agents/:id", func(c echo.Context) error {
			handler(c.Response(), c.Request())
			return nil
		}, lock)
		return e
	},
}

// echoConfig is a Config for Echo, with a key by path value taken from Echo.
func echoConfig(c middleware.Config) echov4.LockConfig {
	return echov4.LockConfig{
		Key: func(ec echo.Context) (namespace.Key, error) {
			ec.Request().SetPathValue("id", ec.Param("id"))
			return c.Key(ec.Request())
		},
		Locker: c.Locker, Skip: c.Skip, Wait: c.Wait, ReadAhead: c.ReadAhead, Shared: c.Shared, Label: c.Label,
		LockSafeMethods: c.LockSafeMethods, BusyStatus: c.BusyStatus, RetryAfter: c.RetryAfter,
		ShowHolder: c.ShowHolder, ErrorHandler: c.ErrorHandler, Logger: c.Logger,
	}
}

func byPath(l *advisory.Locker) middleware.Config {
	return middleware.Config{Locker: l, Key: middleware.PathValue(agents, "id")}
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

func post(ctx context.Context, h http.Handler, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, path, nil))
	return rec
}

// problem parses the body of a refusal.
func problem(t *testing.T, rec *httptest.ResponseRecorder) (p middleware.ProblemError) {
	t.Helper()
	require.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"), rec.Body)
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &p))
	assert.Equal(t, rec.Code, p.Status)
	assert.NotEmpty(t, p.Title)
	return p
}
