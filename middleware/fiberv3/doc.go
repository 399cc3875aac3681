// Package fiberv3 is package middleware for Fiber v3:
//
//	app.Post("/agents/:id/stop", fiberv3.Lock(locker, Agents), stop)
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config and an extractor:
//
//	lock, err := fiberv3.New(middleware.Config{Locker: locker, Skip: true}, fiberv3.Param(Agents, "id"))
//
// The documentation of package middleware describes the answers. Fiber is not net/http, and these
// points differ:
//
//   - A client that leaves is not detected, because fasthttp does not watch the connection while a
//     handler runs. A request whose client has left waits on, up to Config.Wait, and its handler
//     still runs. The handler's context, c.Context(), ends with the lock, or when the program ends
//     it.
//   - An answer is sent after all handlers have returned. After a loss the client gets 503,
//     whatever the handler has written. Streaming (SendStreamWriter, SendStream) and work on a
//     connection that the handler took over happen after its return, and therefore run without
//     the lock.
//   - Refusals are logged without method and path, and have no Server-Timing. net/http's
//     ErrorHandler does not exist here.
//
// With UnescapePath the lock is on the parameter as the handler sees it. Fiber then reads a plus in
// a path as a space, as in a query: for "a+b", both the handler and the lock get "a b". Without
// UnescapePath the handler sees "4%32", and the lock is on the text it stands for, "42".
//
// A panic releases the lock and continues. Put Fiber's recover middleware outside: without it a
// panic ends the program.
//
// fiberv3 is a separate module, so that programs with another router do not compile Fiber.
package fiberv3
