// Package connectv1 is package middleware for Connect: it runs the calls for one entity one after
// the other, in all processes that share a database.
//
//	lock, err := connectv1.New(middleware.Config{Locker: locker}, key)
//	path, handler := agentv1connect.NewAgentServiceHandler(agents, connect.WithInterceptors(lock))
//
// An interceptor sees every call of a service. key finds the entity of a call from its procedure and
// its message. For calls that need no lock, key returns middleware.ErrNoLock:
//
//	key := func(ctx context.Context, spec connect.Spec, header http.Header, msg any) (namespace.Key, error) {
//		if r, ok := msg.(*agentv1.StopRequest); ok {
//			return Agents.ID(r.Id), nil
//		}
//		return namespace.Key{}, middleware.ErrNoLock
//	}
//
// spec tells key which procedures have no side effects (IdempotencyLevel). The interceptor is for
// handlers: in a client it would take the lock around the client's calls.
//
// # What a call gets
//
//	the lock                      the handler; its context is that of the lock
//	the lock is held              aborted, RetryInfo; with Config.ShowHolder, the holder
//	the lock was lost             aborted, no RetryInfo, reason LOCK_LOST, whatever the handler returned
//	no connection, PostgreSQL     unavailable, RetryInfo
//	no or an invalid entity       invalid_argument
//	the program's mistake         internal
//	the client has gone           the handler does not run
//
// Connect's own protocol sends aborted as 409 and unavailable as 503. Each refusal carries a
// google.rpc.ErrorInfo of the domain "pglatch", with its reason, and with namespace, entity and
// holder in its metadata. The table with the reasons is at ProblemError.Code of package middleware.
//
// A stream holds its lock from its start to its end. Messages that were sent before a loss stay
// sent. A loss ends only the context of the handler: a blocked Receive or Send stays blocked until
// the client sends, reads or leaves. If a handler waits for messages and must stop at a loss, let it
// receive on a separate goroutine, and wait for a message or for its context. A panic releases the
// lock and continues; put connect.WithRecover outside.
//
// connectv1 is a separate module, so that programs without Connect do not compile it.
package connectv1
