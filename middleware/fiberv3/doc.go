// Package fiberv3 is package middleware for Fiber v3:
//
//	app.Post("/agents/:id/stop", fiberv3.Lock(locker, Agents), stop)
//
// takes the lock on Agents and the path parameter "id" before stop runs. New takes a whole
// middleware.Config and an extractor:
//
//	lock, err := fiberv3.New(middleware.Config{Locker: locker, Skip: true}, fiberv3.Param(Agents, "id"))
//
// What requests get is in the documentation of package middleware. Fiber is not net/http, and
// these differ:
//
//   - A client that leaves is not noticed. fasthttp does not watch the connection while a
//     handler runs, so that a request whose client has gone waits on, up to Config.Wait, and
//     its handler runs. The handler's context, c.Context(), ends with the lock, and with what
//     the program ends it.
//   - An answer is sent when all handlers have returned. After a loss the client gets 503
//     whatever the handler has written. What a handler streams (SendStreamWriter, SendStream)
//     or does on a connection that it took over runs after its return, and so without the lock.
//   - Refusals are logged without method and path, and have no Server-Timing. There is no
//     ErrorHandler of net/http.
//
// With UnescapePath the lock is that of the parameter as the handler sees it. Fiber reads a plus
// in a path as a space then, as in a query: both see "a b" for "a+b". Without UnescapePath the
// handler sees "4%32", and the lock is that of the text it stands for, "42".
//
// A panic frees the lock and goes on. Fiber's recover middleware stands outside: without it a
// panic ends the program.
//
// It is a module of its own, so that who uses another router does not compile Fiber.
package fiberv3
