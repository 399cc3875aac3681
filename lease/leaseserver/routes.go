package leaseserver

import (
	_ "embed"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pglatch/pglatch/lease/internal/wire"
)

//go:embed openapi.json
var openAPI []byte

// A route is a pattern of http.ServeMux with its handler.
type route struct {
	pattern string
	handler handler
}

func (s *Server) routes() []route {
	metrics := promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{})
	routes := []route{
		{"POST /v1/locks/{lock}/acquire", s.guard(Hold, s.acquire)},
		{"POST /v1/locks/{lock}/renew", s.guard(Hold, s.renew)},
		{"POST /v1/locks/{lock}/release", s.guard(Hold, s.release)},
		{"POST /v1/locks/{lock}/adopt", s.guard(Hold, s.adopt)},
		{"POST /v1/locks/{lock}/force-release", s.guard(Admin, s.forceRelease)},
		{"POST /v1/batch", s.guard(Hold, s.batch)},
		{"GET /v1/locks/{lock}", s.guard(Read, s.get)}, // a mux matches HEAD, too
		{"GET /v1/locks", s.guard(Read, s.list)},
		{"GET /v1/openapi.json", describe},
		{"GET /metrics", s.guard(Metrics, func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		})},
		{"GET /healthz", s.alive},
		{"GET /readyz", s.ready},
	}
	if s.forwarder != nil { // for servers, and so not in the document
		routes = append(routes, route{"GET " + activeRoute, s.isActive})
	}
	return routes
}

// guard wraps every route that shows or changes locks; need is the right it requires.
func (s *Server) guard(need Right, next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if id := r.Header[wire.RequestID]; len(id) == 1 && len(id[0]) <= wire.MaxRequestID {
			w.Header()[wire.RequestID] = id
		}
		from, err := s.hopOf(r)
		if err != nil {
			return err
		}
		if need != Metrics && !from.isProven() && !s.limiter.Allow(r.RemoteAddr) { // metrics stay readable when many requests are refused
			return wire.Refuse(wire.TypeRateLimited, "too many requests from this address")
		}
		token, err := s.authorize(r, from, need)
		if err != nil {
			return err
		}
		if token != nil || from != nil {
			r = r.WithContext(caller{token: token, hop: from}.in(r.Context()))
		}
		switch {
		case s.forwarder == nil || need == Metrics:
			return next(w, r)
		case from != nil:
			return s.forwardedHere(w, r, next)
		}
		return s.anywhere(w, r, next)
	}
}

// isActive answers servers that would forward requests here.
func (s *Server) isActive(w http.ResponseWriter, r *http.Request) error {
	if challenge := r.Header.Get(challengeHeader); challenge != "" {
		return s.prove(w, challenge)
	}
	from, err := s.hopOf(r)
	if err != nil {
		return err
	}
	if from == nil {
		return refuseHop("this is for servers")
	}
	return s.forwardedHere(w, r, func(w http.ResponseWriter, _ *http.Request) error { return noContent(w) })
}

// describe answers with the description of all routes.
func describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = jsonTypes
	_, _ = w.Write(openAPI) // it fails only with the connection
	return nil
}
