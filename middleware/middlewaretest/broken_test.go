package middlewaretest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { leak.Main(m) }

// serve serves by an adapter that is right but for what its kind changes.
func serve(kind string) func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	return func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
		t.Helper()
		var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handle(w, r, r.PathValue("id")) })
		locked := func(h http.Handler) http.Handler { return middleware.Must(s.Config)(h) }
		switch key := s.Config.Key; kind {
		case "no lock":
			locked = func(h http.Handler) http.Handler { return h }
		case "the context is that before the lock":
			inner := handler
			handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outer, _ := r.Context().Value(outerKey{}).(context.Context)
				inner.ServeHTTP(w, r.WithContext(outer))
			})
		case "a busy lock is a plain 423":
			s.Config.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, p *middleware.ProblemError) { w.WriteHeader(p.Status) }
		case "all entities are one":
			s.Config.Key = func(*http.Request) (namespace.Key, error) { return middlewaretest.Agents.ID(42), nil }
		case "entities in upper and lower case are one":
			s.Config.Key = middleware.KeyFunc(func(r *http.Request) (namespace.Key, error) {
				r.SetPathValue("id", strings.ToLower(r.PathValue("id")))
				return key(r)
			})
		case "escapes are resolved twice":
			s.Config.Key = middleware.KeyFunc(func(r *http.Request) (namespace.Key, error) {
				r.SetPathValue("id", strings.ReplaceAll(r.PathValue("id"), "%42", "B"))
				return key(r)
			})
		case "safe methods are locked":
			s.Config.LockSafeMethods = true
		case "a panic is swallowed":
			inner := handler
			handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				inner.ServeHTTP(w, r)
			})
		}
		mux := http.NewServeMux()
		mux.Handle("/agents/{id}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := locked(handler)
			switch kind {
			case "clients are not seen to leave":
				r = r.WithContext(context.WithoutCancel(r.Context()))
			case "answers are buffered":
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				for name := range rec.Header() {
					w.Header().Set(name, rec.Header().Get(name))
				}
				w.WriteHeader(rec.Code)
				_, _ = io.Copy(w, rec.Body)
				return
			}
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), outerKey{}, r.Context())))
		}))
		return s.HTTP(t, mux)
	}
}

type outerKey struct{}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, run, map[string]string{
		"no lock":                                  "a second request for an entity, on another replica, waits for the first",
		"the context is that before the lock":      "the handler's context carries the lock",
		"a busy lock is a plain 423":               "a busy entity is told with who holds it and when to try again",
		"all entities are one":                     "no path gets past the lock, or to another entity's",
		"entities in upper and lower case are one": "each entity has its own lock, whatever its text",
		"escapes are resolved twice":               "no path gets past the lock, or to another entity's",
		"safe methods are locked":                  "a safe method passes, unless it is to be locked",
		"a panic is swallowed":                     "a panic frees the lock and goes on",
		"clients are not seen to leave":            "a client that leaves while it waits leaves the line, and its handler does not run",
		"answers are buffered":                     "what a handler sends arrives while the lock is held",
	})
}

// run runs the suite on an adapter with a fault.
func run(t *testing.T, kind string) {
	t.Helper()
	f := middlewaretest.Framework{Serve: serve(kind)}
	if kind != "" {
		f.Timeout = 2 * time.Second // for what never comes
	}
	middlewaretest.Run(t, f)
}

func TestWhatAFrameworkLacksIsShown(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{
		Serve:   serve("clients are not seen to leave"),
		Without: map[middlewaretest.Ability]string{middlewaretest.SeesDisconnects: "its requests have no context that ends with the connection"},
	})
}
