// Package grpcv1 is package middleware for gRPC: it runs the calls for one entity one after the
// other, in all processes that share a database.
//
//	lock, err := grpcv1.New(middleware.Config{Locker: locker}, key)
//	server := grpc.NewServer(grpc.UnaryInterceptor(lock.Unary), grpc.StreamInterceptor(lock.Stream))
//
// Interceptors see every call of a server. key finds the entity of a call from its method and its
// message. For calls that need no lock, key returns middleware.ErrNoLock:
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
//	the lock is held              Aborted, RetryInfo; with Config.ShowHolder, the holder
//	the lock was lost             Aborted, no RetryInfo, reason LOCK_LOST, whatever the handler returned
//	no connection, PostgreSQL     Unavailable, RetryInfo
//	no or an invalid entity       InvalidArgument
//	the program's mistake         Internal
//	the client has gone           the handler does not run
//
// Each refusal carries a google.rpc.ErrorInfo of the domain "pglatch". Its reason is LOCK_BUSY,
// LOCK_LOST, LOCK_POOL_EXHAUSTED, LOCK_UNAVAILABLE, LOCK_REFUSED, LOCK_MISUSE or LOCK_NO_ENTITY. Its
// metadata contains namespace, entity and holder. The table with the reasons is at ProblemError.Code
// of package middleware. Aborted is gRPC's code for concurrency conflicts. Unavailable means that a
// server does not work, and the retry policies of many clients repeat the call. So it must not be the
// answer to a call whose outcome is unknown.
//
// A stream holds its lock from its start to its end. Messages that were sent before a loss stay sent.
// A loss ends only the context of the handler. RecvMsg and SendMsg follow the context of the call: a
// blocked one stays blocked until the client sends, reads or leaves. If a handler waits for messages
// and must stop at a loss, let it receive on a separate goroutine. It then waits for a message or for
// stream.Context(), and returns: that ends the call, and RecvMsg. A panic releases the lock and
// continues. Put an interceptor that recovers panics outside: before this interceptor in
// grpc.ChainUnaryInterceptor.
//
// grpcv1 is a separate module, so that programs without gRPC do not compile it.
package grpcv1
