package echov4_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

func ExampleLock() {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	e := echo.New()
	e.POST("/agents/:id/stop", func(c echo.Context) error {
		return c.String(http.StatusOK, "stopped "+c.Param("id"))
	}, echov4.Lock(locker, agents))

	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/agents/42/stop", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 stopped 42
}

// A route with a key, a wait and a skipper of its own.
func ExampleLockWithConfig() {
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	config := echov4.DefaultLockConfig
	config.Locker = locker
	config.Key = func(c echo.Context) (namespace.Key, error) { return agents.Text(c.Request().Header.Get("Agent")) }
	config.Wait = 2 * time.Second
	config.Skipper = func(c echo.Context) bool { return c.QueryParam("dry-run") == "true" }
	e := echo.New()
	e.POST("/stop", func(c echo.Context) error { return c.String(http.StatusOK, "stopped") }, echov4.LockWithConfig(config))

	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/stop", nil)
	r.Header.Set("Agent", "crawler")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	// Output: 200 stopped
}
