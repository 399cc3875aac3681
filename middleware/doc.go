// Package middleware puts a lock around an HTTP handler, per entity. Requests for one entity run
// one after the other, in all processes that share a database. Requests for different entities run
// side by side.
//
//	mux := http.NewServeMux()
//	lock := middleware.Must(middleware.Config{
//		Locker: locker,
//		Key:    middleware.PathValue(Agents, "id"),
//	})
//	mux.Handle("POST /agents/{id}/stop", lock(http.HandlerFunc(stop)))
//
// A request takes the same key as locker.Do(ctx, Agents.ID(42), …) and as every other program that
// locks it. Routes and background jobs therefore exclude each other. New serves net/http and
// routers built on it, such as chi. The packages below this one do the same for other frameworks:
// echov4, and as separate modules echov5, ginv1, fiberv3, grpcv1 and connectv1. All of them pass
// the conformance suite in middlewaretest.
//
// # Where it stands
//
// Put the middleware inside authentication, and outside all code that changes the entity. It must
// run after routing, on the route. Around a whole http.ServeMux, in chi's Use of the root router
// and in echo.WrapMiddleware, r.PathValue is empty, and every request gets 400. Put a middleware
// that recovers panics outside.
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
// Every refusal is a Problem: an application/problem+json body of RFC 9457. Except after a loss, a
// request is refused before the handler runs. For programs that lock in their handlers, the
// function Problem has the same table. The entity alone selects the lock, and only the program's
// extractor names it: the middleware reads no header.
//
// A client that has left gets no answer. Under an http.Server the middleware then aborts the
// handler with http.ErrAbortHandler. The reason is that the program itself may have canceled
// the context while the client is still there. A plain return would then send that client an
// empty 200.
//
// A request whose client leaves during the wait leaves the queue, and its handler does not run. An
// HTTP/1.1 server detects that only after the end of the body. The middleware therefore reads the
// body before the request waits, up to Config.ReadAhead, and the handler gets it unchanged. So a
// client that sends its body slowly delays no other request. The handler still runs for a client
// that has left in these cases: the body is longer than that, is chunked, or is held back until
// 100 Continue, or the client left at the moment of the grant. HTTP/2 needs none of this.
//
// # What it does not do
//
// If the lock is lost, the handler's context ends, with a *advisory.LostError as its cause. The
// handler must stop when its context ends. If it had written a status, the client keeps that
// answer. A lock orders requests, but does not make them atomic: the handler's effects before a
// loss or a panic remain.
//
// The handler and the extractor must use the same text for an entity. "042" is not the canonical
// form of 42, and so is a different lock. If the handler parses an integer, let the Key parse it
// too and return Agents.ID(id).
package middleware
