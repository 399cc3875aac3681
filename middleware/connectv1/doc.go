// Package connectv1 is package middleware for Connect: calls for one entity run one after
// the other, in all processes that share a database.
//
//	lock, err := connectv1.New(middleware.Config{Locker: locker}, key)
//	path, handler := agentv1connect.NewAgentServiceHandler(agents, connect.WithInterceptors(lock))
//
// An interceptor sees every call of a service. key finds the entity of a call, by its
// procedure and its message, and returns middleware.ErrNoLock for those that need no lock:
//
//	key := func(ctx context.Context, spec connect.Spec, header http.Header, msg any) (namespace.Key, error) {
//		if r, ok := msg.(*agentv1.StopRequest); ok {
//			return Agents.ID(r.Id), nil
//		}
//		return namespace.Key{}, middleware.ErrNoLock
//	}
//
// spec tells it which procedures have no side effects (IdempotencyLevel). The interceptor is for
// handlers: given to a client it would take the lock around its calls.
//
// # What a call gets
//
//	the lock                      the handler; its context is that of the lock
//	the lock is held              aborted, RetryInfo; with Config.ShowHolder, who holds it
//	the lock was lost             aborted, no RetryInfo, reason LOCK_LOST, whatever the handler returned
//	no connection, PostgreSQL     unavailable, RetryInfo
//	no or an invalid entity       invalid_argument
//	the program's mistake         internal
//	the client has gone           the handler does not run
//
// Connect's own protocol sends aborted as 409 and unavailable as 503. Each refusal has a
// google.rpc.ErrorInfo of the domain "pglatch", whose reason says which it is, with namespace,
// entity and holder in its metadata. The table, with its reasons, is at ProblemError.Code of package
// middleware.
//
// A stream holds its lock from its begin to its end. Messages that were sent before a loss stay
// sent. A loss ends the context of the handler, and nothing else: a Receive or Send that is blocked
// stays blocked until the client sends, reads or goes. A handler that waits for messages and must
// stop at a loss receives on a goroutine of its own, and waits for that or for its context.
// A panic frees the lock and goes on; connect.WithRecover stands outside.
//
// It is a module of its own, so that who has no Connect does not compile it.
package connectv1
