package middlewaretest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { leak.Main(m) }

// broken serves by an adapter that is right but for what its kind changes.
func broken(kind string) func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
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

// The suite is worth what it finds. It runs in this test's own binary, where it fails.
func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for kind, found := range map[string]string{
		"no lock":                                  "a_second_request_for_an_entity,_on_another_replica,_waits_for_the_first",
		"the context is that before the lock":      "the_handler's_context_carries_the_lock",
		"a busy lock is a plain 423":               "a_busy_entity_is_told_with_who_holds_it_and_when_to_try_again",
		"all entities are one":                     "no_path_gets_past_the_lock,_or_to_another_entity's",
		"entities in upper and lower case are one": "each_entity_has_its_own_lock,_whatever_its_text",
		"escapes are resolved twice":               "no_path_gets_past_the_lock,_or_to_another_entity's",
		"safe methods are locked":                  "a_safe_method_passes,_unless_it_is_to_be_locked",
		"a panic is swallowed":                     "a_panic_frees_the_lock_and_goes_on",
		"clients are not seen to leave":            "a_client_that_leaves_while_it_waits_leaves_the_line,_and_its_handler_does_not_run",
		"answers are buffered":                     "what_a_handler_sends_arrives_while_the_lock_is_held",
		"":                                         "", // the control of the control
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := "^TestABrokenAdapter$/" + regexp.QuoteMeta(found)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.timeout=120s")
			cmd.Env = append(os.Environ(), "MIDDLEWARETEST_BROKEN=yes "+kind)
			out, err := cmd.CombinedOutput()
			if kind == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestABrokenAdapter/"+found)
			assert.NotContains(t, string(out), "panic: test timed out")
		})
	}
}

func TestABrokenAdapter(t *testing.T) {
	kind := os.Getenv("MIDDLEWARETEST_BROKEN")
	if kind == "" {
		t.Skip("TestTheSuiteFindsWhatIsBroken runs it")
	}
	f := middlewaretest.Framework{Serve: broken(kind[len("yes "):])}
	if kind != "yes " {
		f.Timeout = 2 * time.Second // for what never comes
	}
	middlewaretest.Run(t, f)
}

func TestWhatAFrameworkLacksIsShown(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{
		Serve:   broken("clients are not seen to leave"),
		Without: map[middlewaretest.Ability]string{middlewaretest.SeesDisconnects: "its requests have no context that ends with the connection"},
	})
}
