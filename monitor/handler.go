package monitor

import (
	"net/http"
	"strings"
	"time"

	"github.com/pglatch/pglatch/monitor/internal/web"
)

// Path is the path of Handler, below the prefix at which it is mounted.
const Path = "/api/advisory-locks"

// Handler returns a handler that answers GET and HEAD {prefix}/api/advisory-locks with a Snapshot
// as JSON, for any prefix, stripped or not. The query filters the locks. A lock must match all
// given filters:
//
//	namespace=agent         this namespace; a number for pairs without a name
//	q=text                  part of application_name, key.text or namespace, in any case
//	state=held | waiting
//	pid=1234
//	limit=1000              locks in one answer: 1 to 10,000, 1,000 without it
//	after=2.1.42.1          the next of the previous answer
//
// total counts the matching locks. next is present if there are more than the answer has. Pass it
// as after in the next request. Each answer comes from its own picture, so a lock that is taken or
// released meanwhile may be missing, or appear twice.
//
// Other answers are problems of RFC 9457: 403 if Config.Authorize refuses, 404 for other paths, 405
// for other methods, and 400 for an unknown filter or a bad value. When the database does not
// answer, the answer is 503 with Retry-After; Config.Logger receives the reason, the client does
// not. Answers must not be cached.
func (m *Monitor) Handler() http.Handler { return http.HandlerFunc(m.serve) }

func (m *Monitor) serve(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if err := m.config.Authorize(r, ActionView); err != nil {
		refuse(w, http.StatusForbidden, 0, err.Error())
		return
	}
	if !strings.HasSuffix(r.URL.Path, Path) {
		refuse(w, http.StatusNotFound, 0, "the list of locks is at "+Path)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, 0, "use GET or HEAD")
		return
	}
	which, part, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	f, err := m.look(r.Context())
	if err != nil {
		// If the client left, nobody reads this.
		refuse(w, http.StatusServiceUnavailable, time.Second, "the database does not answer; the log of this program says why")
		return
	}
	web.WriteJSON(w, f.answer(which, part))
}

func setSecurityHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
}
