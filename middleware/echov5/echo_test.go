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

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov5"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { leak.Main(m) }

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

var configs = map[string]echo.RouterConfig{
	"as it comes":             {},
	"the router unescapes":    {UnescapePathParamValues: true},
	"it matches decoded path": {UseEscapedPathForMatching: true},
}

func TestEchoConforms(t *testing.T) {
	t.Parallel()
	for name, config := range configs {
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

// Whether a router has unescaped a parameter is seen of the parameter, not of the rest of the path.
func TestTheLockIsThatOfTheHandlersParameterWhateverElseIsInThePath(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	for path, entity := range map[string]string{
		"/agents/42/files/x":        "42",
		"/agents/4%32/files/x":      "42",
		"/agents/%2561/files/x":     "%61",
		"/agents/%2561/files/%61":   "%61",
		"/agents/%2561/files/%2f":   "%61",
		"/agents/a%2Fb/files/x/%61": "a/b",
		"/agents/%2561/f%69les/x":   "%61", // another route, if it is not the decoded path that is matched
	} {
		for name, config := range configs {
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(config)})
			check := func(ec *echo.Context) error {
				if name != "as it comes" {
					assert.Equal(t, entity, ec.Param("id"), "%s, %s", path, name)
				}
				want, err := agents.Text(entity)
				assert.NoError(t, err)
				for held := range locker.Held() {
					assert.Equal(t, []namespace.Key{want}, held.Keys, "%s, %s", path, name)
				}
				return nil
			}
			e.POST("/agents/:id/files/:name", check, echov5.Lock(locker, agents))
			e.POST("/agents/:id/files/:name/*", check, echov5.Lock(locker, agents))
			e.POST("/agents/:id/b/files/*", func(*echo.Context) error { return nil }) // the decoded a%2Fb
			e.POST(`/agents/:id/f%69les/:name`, check, echov5.Lock(locker, agents))
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
			assert.Equal(t, http.StatusOK, w.Code, "%s, %s", path, name)
		}
	}
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
