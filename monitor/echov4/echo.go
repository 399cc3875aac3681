// Package echov4 mounts a monitor on Echo v4:
//
//	echov4.Register(e, "/pglatch", m)
package echov4

import (
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/monitor"
)

// Register mounts m's Handler on e at prefix + "/api/advisory-locks", for every method: the Handler
// itself refuses all methods but GET and HEAD.
func Register(e *echo.Echo, prefix string, m *monitor.Monitor) {
	e.Any(strings.TrimRight(prefix, "/")+monitor.Path, echo.WrapHandler(m.Handler()))
}
