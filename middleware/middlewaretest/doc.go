// Package middlewaretest is the conformance suite of the adapters of package middleware. It
// checks that a router, or an RPC framework, with a lock around its handlers keeps what
// package middleware promises: requests for one entity run one after the other, a busy one
// is told so, a lost lock ends the request, a panic frees the lock, a client that leaves
// leaves the line, and no path gets past the lock.
//
// An adapter of one's own for a router on net/http is tested by one call:
//
//	middlewaretest.Run(t, middlewaretest.Framework{
//		Serve: func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
//			r := router.New()
//			r.Handle("/agents/:id", adapter.New(s.Config), func(c *router.Context) {
//				s.Handle(c.Writer, c.Request, c.Param("id"))
//			})
//			return s.HTTP(t, r)
//		},
//	})
//
// What a framework cannot do is named in Framework.Without with its reason. The suite then
// shows a subtest of that name, which checks that it is so where that can be seen.
package middlewaretest
