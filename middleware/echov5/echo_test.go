package echov5_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov5"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var agents = namespace.Must(1, "agent")

func serve(config echo.RouterConfig) func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	return func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
		t.Helper()
		lock, err := echov5.New(s.Config)
		require.NoError(t, err)
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
		e.Any("/agents/:id", func(ec *echo.Context) error {
			s.Handle(ec.Response(), ec.Request(), ec.Param("id"))
			return nil
		}, lock)
		return s.HTTP(t, e)
	}
}

func TestEchoConforms(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]echo.RouterConfig{
		"as it comes":             {},
		"the router unescapes":    {UnescapePathParamValues: true},
		"it matches decoded path": {UseEscapedPathForMatching: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			middlewaretest.Run(t, middlewaretest.Framework{Serve: serve(config)})
		})
	}
}

func open() *advisory.Locker {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	return locker
}

func TestHandlersErrorsGoToEcho(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	e := echo.New()
	e.POST("/agents/:id", func(*echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "") }, echov5.Lock(locker, agents))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/42", nil))
	assert.Equal(t, http.StatusTeapot, w.Code)
	assert.Panics(t, func() { echov5.Lock(nil, agents) })
	_, err := echov5.New(middleware.Config{Locker: locker})
	assert.ErrorContains(t, err, "Key is nil")
}

func ExampleLock() {
	locker := open()
	defer locker.Close()
	e := echo.New()
	e.POST("/agents/:id/stop", func(c *echo.Context) error {
		return c.String(http.StatusOK, "stopped "+c.Param("id"))
	}, echov5.Lock(locker, agents))

	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/agents/42/stop", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 stopped 42
}
