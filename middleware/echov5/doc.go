// Package echov5 is package middleware for Echo v5:
//
//	e.POST("/agents/:id/stop", stop, echov5.Lock(locker, Agents))
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config, to whose Key the path parameters are path values:
//
//	lock, err := echov5.New(middleware.Config{Locker: locker, Key: middleware.PathValue(Agents, "id"), Skip: true})
//
// What requests get, and what is promised, is in the documentation of package middleware.
// It must stand on the route, or on a group of routes: before routing there is no
// parameter, and every request is answered with 400.
//
// It is a module of its own, so that who uses another router does not compile Echo.
package echov5
