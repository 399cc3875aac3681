// Package echov4 is package middleware for Echo v4:
//
//	e.POST("/agents/:id/stop", stop, echov4.Lock(locker, Agents))
//
// takes the lock on Agents and the path parameter "id" before stop runs. LockConfig has the fields
// of middleware.Config, Echo's Skipper, and a Key that reads the echo.Context. The documentation of
// package middleware describes the answers and the guarantees.
//
// Put the middleware on a route or a group of routes: before routing there is no parameter, and
// every request gets 400. The middleware writes refusals instead of returning them: Echo's
// HTTPErrorHandler sees only the errors of the handler.
package echov4
