// Package ginv1 is package middleware for Gin v1:
//
//	r.POST("/agents/:id/stop", ginv1.Lock(locker, Agents), stop)
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config; its Key sees the path parameters as path values:
//
//	lock, err := ginv1.New(middleware.Config{Locker: locker, Key: middleware.PathValue(Agents, "id"), Skip: true})
//
// The documentation of package middleware describes the answers and the guarantees.
//
// A status that a handler sets with c.Status is not sent until something is written: if the lock
// is lost before that, the client gets
//  503. Only the request of the gin.Context, and therefore c.Request.Context(), carries the lock.
//     The gin.Context itself ends with the lock only under Engine.ContextWithFallback. Put
//     gin.Recovery outside: it writes nothing when a client has left.
//
// With UseRawPath or UseEscapedPath, leave UnescapePathValues on, which is the default. Without it,
// an entity has a different lock for each spelling of its name in a path. With these options, Gin
// reads a plus in an escaped path as a space, as in a query. For "a+b", both the handler and the
// lock then get "a b". Other routers, and Gin without these options, pass "a+b".
//
// ginv1 is a separate module, so that programs with another router do not compile Gin.
package ginv1
