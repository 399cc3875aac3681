// Package middleware puts a lock around an HTTP handler, per entity: requests for
// one entity run one after the other, in all processes that share a database, and
// requests for different entities run side by side.
//
//	mux := http.NewServeMux()
//	lock := middleware.Must(middleware.Config{
//		Locker: locker,
//		Key:    middleware.PathValue(Agents, "id"),
//	})
//	mux.Handle("POST /agents/{id}/stop", lock(http.HandlerFunc(stop)))
//
// A request takes the same key as locker.Do(ctx, Agents.ID(42), …) and as every
// other program that locks it, so that routes and background jobs exclude each
// other. New serves net/http and routers of its shape, chi among them. Packages below this
// one are the same for others: echov4, and each as a module of its own echov5, ginv1, fiberv3,
// grpcv1 and connectv1. One conformance suite, middlewaretest, is passed by all of them.
//
// # Where it stands
//
// Inside authentication and outside what changes the entity. The middleware must
// run after routing, on the route: around a whole http.ServeMux, in chi's Use of
// the root router and in echo.WrapMiddleware, r.PathValue is empty, and every
// request is answered with 400. A middleware that recovers panics stands outside.
//
// # What a request gets
//
//	GET, HEAD, OPTIONS, TRACE          the handler, without a lock (LockSafeMethods)
//	the lock                           the handler; its context is that of the lock
//	no or an invalid entity            400
//	the extractor's *RequestError      its status; ErrNoLock: the handler, without a lock; another error: 500
//	the lock is held, or timed out     423 (BusyStatus)
//	no free connection in the pool     503, also if the wait ran out there
//	PostgreSQL fails, Locker closed    503
//	PostgreSQL refuses the Locker      500: a password, database or right is wrong, and trying again does not help
//	the key is held by this request    500 (ErrReentrant), or a cycle (ErrDeadlock)
//	the lock was lost, nothing written 503
//	the client has gone                nothing
//
// Every refusal is a Problem, an application/problem+json body of RFC 9457, and
// happens before the handler ran, except for the loss. Func Problem has the table, for programs
// that lock in their handlers. The entity decides, and
// only the program's extractor names it: no header is looked at.
//
// Nothing is written to a client that has gone. Under an http.Server the handler
// is then aborted with http.ErrAbortHandler: a plain return would be an empty 200
// to a client that is still there, if it was the program that canceled the context.
//
// A request whose client leaves during the wait leaves the line, and its handler does
// not run. An HTTP/1.1 server notices that only after the end of the body, so the
// body is read before the request waits, up to Config.ReadAhead; the handler gets it as
// it was sent. A client that sends its body slowly therefore holds nobody up. The handler
// runs for a client that has gone if its body is longer than that, chunked, or held back
// until 100 Continue, or if it left in the moment of the grant. HTTP/2 needs none of this.
//
// # What it does not do
//
// The context of a handler whose lock was lost ends, with a *advisory.LostError as
// its cause; the handler must obey it. If it wrote a status before it
// returned, the client keeps that answer. A lock orders requests and does not make
// them atomic: what a handler did before a loss or a panic stays done.
//
// The handler and the extractor must mean one entity by one text. "042" is not the
// canonical form of 42, and another lock: where the handler parses an integer, let
// the Key parse it too and return Agents.ID(id).
package middleware
