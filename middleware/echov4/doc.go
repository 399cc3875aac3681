// Package echov4 is package middleware for Echo v4:
//
//	e.POST("/agents/:id/stop", stop, echov4.Lock(locker, Agents))
//
// takes the lock on Agents and the path parameter "id" before stop runs. LockConfig has the
// fields of middleware.Config, Echo's Skipper, and a Key that reads the echo.Context. What
// requests get, and what is promised, is in the documentation of package middleware.
//
// It must stand on the route, or on a group of routes: before routing there is no
// parameter, and every request is answered with 400. Refusals are written, not returned, so
// that Echo's HTTPErrorHandler sees the errors of the handler only.
package echov4
