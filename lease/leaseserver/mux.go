package leaseserver

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/pglatch/pglatch/lease/internal/wire"
)

const (
	paramLock = "lock"
	lockRoute = "/v1/locks/{lock}"
)

// handler returns the handler of all routes. The name of a lock is the path segment after /v1/locks/,
// whatever it contains. An http.ServeMux reads some paths differently:
//
//   - It removes "//", "/./" and "/../" and redirects to the result, which can be another lock.
//   - It does not match a wildcard with the segment %2F.
//   - It matches /v1/locks with /v1/%6Cocks.
//   - It matches URL.EscapedPath. If a client sends both %2F and a character that should be escaped,
//     such as "|", the %2F is a slash there.
//
// So the mux serves only paths that it does not change. For any other path, it finds the route with a
// placeholder for the name.
func (s *Server) handler() http.Handler {
	mux := s.newMux()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawPath == "" && isClean(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		route, name := routeOf(cmp.Or(r.URL.RawPath, r.URL.EscapedPath()))
		h, pattern := mux.Handler(&http.Request{Method: r.Method, URL: &url.URL{Path: route}})
		r.Pattern = pattern
		r.SetPathValue(paramLock, name)
		h.ServeHTTP(w, r)
	})
}

func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		mux.Handle(r.pattern, s.answer(r.handler))
		mux.Handle(path, s.answer(otherThan(method)))
	}
	mux.Handle("/", s.answer(func(http.ResponseWriter, *http.Request) error {
		return wire.Refuse(wire.TypeNoRoute, "see /v1/openapi.json")
	}))
	return mux
}

// routeOf splits an escaped path into the path of its route, where {lock} stands for the name of a
// lock, and the name. It returns "/" for a path that has no route.
func routeOf(escaped string) (route, name string) {
	route = escaped
	if rest, ok := strings.CutPrefix(escaped, "/v1/locks/"); ok && rest != "" {
		name, _, _ = strings.Cut(rest, "/")
		route = lockRoute + rest[len(name):]
	}
	name, err := url.PathUnescape(name)
	if err != nil || strings.Contains(route, "%") || !isClean(route) {
		return "/", ""
	}
	return route, name
}

// routePath returns the path of the route of a request, with {lock} for the name of a lock.
func routePath(r *http.Request) string {
	_, path, _ := strings.Cut(r.Pattern, " ")
	return path
}

// isClean reports whether a path is absolute, and none of its segments is empty, "." or "..".
func isClean(p string) bool { return strings.HasPrefix(p, "/") && path.Clean(p) == p }

// otherThan answers requests to a route by methods that it does not have.
func otherThan(method string) handler {
	allow := http.MethodOptions + ", " + method
	if method == http.MethodGet {
		allow += ", " + http.MethodHead
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			return noContent(w)
		}
		return wire.Refuse(wire.TypeMethodNotAllowed, "see the Allow header")
	}
}
