// Package grpcv1 is package middleware for gRPC: calls for one entity run one after the
// other, in all processes that share a database.
//
//	lock, err := grpcv1.New(middleware.Config{Locker: locker}, key)
//	server := grpc.NewServer(grpc.UnaryInterceptor(lock.Unary), grpc.StreamInterceptor(lock.Stream))
//
// Interceptors see every call of a server. key finds the entity of a call, by its method and
// its message, and returns middleware.ErrNoLock for those that need no lock:
//
//	key := func(ctx context.Context, method string, req any) (namespace.Key, error) {
//		if r, ok := req.(*agentpb.StopRequest); ok {
//			return Agents.ID(r.Id), nil
//		}
//		return namespace.Key{}, middleware.ErrNoLock
//	}
//
// # What a call gets
//
//	the lock                      the handler; its context is that of the lock
//	the lock is held              Aborted, RetryInfo; with Config.ShowHolder, who holds it
//	the lock was lost             Aborted, no RetryInfo, reason LOCK_LOST, whatever the handler returned
//	no connection, PostgreSQL     Unavailable, RetryInfo
//	no or an invalid entity       InvalidArgument
//	the program's mistake         Internal
//	the client has gone           the handler does not run
//
// Each refusal has a google.rpc.ErrorInfo of the domain "pglatch", whose reason says which it
// is (LOCK_BUSY, LOCK_LOST, LOCK_POOL_EXHAUSTED, LOCK_UNAVAILABLE, LOCK_REFUSED, LOCK_MISUSE,
// LOCK_NO_ENTITY), with namespace, entity and holder in its metadata. The table, with its
// reasons, is at ProblemError.Code of package middleware. Aborted is what gRPC has for conflicts of
// concurrency; Unavailable, which is for a server that does not work, is repeated by the
// retry policies of many clients, and must not be the answer to a call whose outcome is not known.
//
// A stream holds its lock from its begin to its end. Messages that were sent before a loss stay
// sent. A loss ends the context of the handler, and nothing else: RecvMsg and SendMsg follow the
// context of the call, so that one that is blocked stays blocked until the client sends, reads or
// goes. A handler that waits for messages and must stop at a loss receives on a goroutine of its own,
// waits for what it receives or for stream.Context(), and returns: that ends the call, and RecvMsg.
// A panic frees the lock and goes on; what recovers it stands outside, before this
// interceptor in grpc.ChainUnaryInterceptor.
//
// It is a module of its own, so that who has no gRPC does not compile it.
package grpcv1
