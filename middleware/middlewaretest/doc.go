// Package middlewaretest is the conformance suite of the adapters of package middleware. It checks
// that a router, or an RPC framework, with a lock around its handlers keeps the guarantees of
// package middleware:
//
//   - Requests for one entity run one after the other.
//   - A request for a busy entity is refused as busy.
//   - A lost lock ends the request.
//   - A panic releases the lock.
//   - A client that disconnects leaves the queue.
//   - No path bypasses the lock.
//
// To test your own adapter for a router on net/http, make one call:
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
// Name each ability that a framework lacks in Framework.Without, with its reason. The suite then
// has a subtest of that name. Where it can be observed, the subtest checks that the framework
// lacks the ability.
package middlewaretest
