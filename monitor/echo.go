package monitor

import (
	"strings"

	"github.com/labstack/echo/v4"
)

// Register mounts m's Handler on e at prefix + "/api/advisory-locks", for every
// method: the Handler itself refuses those other than GET and HEAD.
func Register(e *echo.Echo, prefix string, m *Monitor) {
	e.Any(strings.TrimRight(prefix, "/")+Path, echo.WrapHandler(m.Handler()))
}
