// Package echov5 is package middleware for Echo v5:
//
//	e.POST("/agents/:id/stop", stop, echov5.Lock(locker, Agents))
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config; its Key sees the path parameters as path values:
//
//	lock, err := echov5.New(middleware.Config{Locker: locker, Key: middleware.PathValue(Agents, "id"), Skip: true})
//
// The documentation of package middleware describes the answers and the guarantees. Put the
// middleware on a route or a group of routes: before routing there is no parameter, and every
// request gets 400.
//
// echov5 is a separate module, so that programs with another router do not compile Echo.
package echov5
