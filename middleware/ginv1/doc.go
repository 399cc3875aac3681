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
// A status that a handler sets with c.Status is no answer until something is written: if the lock
// is lost, the client gets
//  503. Only the request of the gin.Context, and therefore c.Request.Context(), carries the lock.
//     The gin.Context itself ends with the lock only under Engine.ContextWithFallback. Put
//     gin.Recovery outside: it writes nothing when a client has left.
//
// With UseRawPath or UseEscapedPath, leave UnescapePathValues on, which is the default. Without it
// one entity has as many locks as its name has spellings in a path. With these options, Gin reads a
// plus in an escaped path as a space, as in a query. Handler and lock then both see "a b" for
// "a+b". Another router, and Gin without these options, see "a+b".
//
// ginv1 is a separate module, so that programs with another router do not compile Gin.
package ginv1
