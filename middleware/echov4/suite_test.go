package echov4_test

import (
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func serve(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	c := s.Config
	param := echov4.Param(middlewaretest.Agents, "id")
	lock, err := echov4.LockConfig{
		Key: func(ec echo.Context) (namespace.Key, error) {
			return s.Key(param(ec))
		},
		Locker: c.Locker, Skip: c.Skip, Wait: c.Wait, LockSafeMethods: c.LockSafeMethods,
		RetryAfter: c.RetryAfter, ShowHolder: c.ShowHolder, ErrorHandler: c.ErrorHandler,
	}.ToMiddleware()
	require.NoError(t, err)
	e := echo.New()
	e.Any("/agents/:id", func(ec echo.Context) error {
		s.Handle(ec.Response(), ec.Request(), ec.Param("id"))
		return nil
	}, lock)
	return s.HTTP(t, e)
}

func TestEchoConforms(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serve})
}
