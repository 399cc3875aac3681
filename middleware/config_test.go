package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/namespace"
)

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
