// Package ginv1 is package middleware for Gin v1:
//
//	r.POST("/agents/:id/stop", ginv1.Lock(locker, Agents), stop)
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config, to whose Key the path parameters are path values:
//
//	lock, err := ginv1.New(middleware.Config{Locker: locker, Key: middleware.PathValue(Agents, "id"), Skip: true})
//
// What requests get, and what is promised, is in the documentation of package middleware.
//
// A status that a handler sets by c.Status is no answer before something is written: if the
// lock is lost, the client gets 503. Only the request of the gin.Context, and so
// c.Request.Context(), carries the lock; the gin.Context itself is a context that ends with it only
// under Engine.ContextWithFallback. gin.Recovery stands outside: it writes nothing when a
// client has gone.
//
// With UseRawPath or UseEscapedPath leave UnescapePathValues on, as it is by default: without
// it one entity has as many locks as it has spellings in a path. With these Gin reads a plus in
// an escaped path as a space, as in a query: handler and lock see the same "a b" for "a+b",
// another router, and Gin without them, "a+b".
//
// It is a module of its own, so that who uses another router does not compile Gin.
package ginv1
