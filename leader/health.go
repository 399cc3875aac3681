package leader

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// overdue returns for how long the last good renewal has no longer been trusted; negative while it is.
func (t *activeTerm) overdue() time.Duration { return t.until.Moment().Since() }

// minStuck is the shortest time after which an Elector without progress counts as stuck.
const minStuck = 10 * time.Second

// stuck reports whether the Elector hangs and needs a restart of the process. There are two cases: the
// lifecycle goroutine has been busy for too long, with a callback or the backend; or the node still counts as
// leader long after the last good renewal expired.
func (e *Elector) stuck() bool {
	tolerance := max(minStuck, e.config.LeaseDuration)
	if t := e.current.Load(); t != nil && t.overdue() > tolerance {
		return true
	}
	since := e.busy.Load()
	return since != 0 && boottime.Now()-time.Duration(since) > tolerance
}

// health is the JSON body of Handler's responses.
type health struct {
	State    string     `json:"state"`
	Name     string     `json:"name"`
	Identity string     `json:"identity"`
	Term     string     `json:"term,omitempty"`  // while it leads, if the backend counts terms
	Since    *time.Time `json:"since,omitempty"` // while it leads
}

// health returns the node's present status, and whether it leads.
func (e *Elector) health() (h health, leads bool) {
	h = health{State: e.State().String(), Name: e.config.Name, Identity: e.config.Identity}
	t := e.current.Load()
	if t == nil || t.ctx.Err() != nil {
		return h, false
	}
	h.State, h.Since = Leader.String(), &t.began
	if !t.term.IsZero() {
		h.Term = t.term.String()
	}
	return h, true
}

// Handler serves GET and HEAD requests of load balancers and orchestrators:
//
//	/leader  200 on the leader, 503 elsewhere: to route requests that only the leader serves
//	/readyz  200, on followers too; 503 while the Elector is stopped
//	/livez   200; 503 when it hangs, in a callback or in the backend, for longer than LeaseDuration, and 10 s at least
//
// The body is JSON, never cached, and needs no I/O: {"state": "leader", "name": …, "identity": …}. The leader
// adds "since", and "term" if its backend counts terms. Do not point a liveness probe at /leader: it would
// restart followers again and again. To mount the handler below a prefix, use http.StripPrefix.
func (e *Elector) Handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, good func(leads bool) bool) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			h, leads := e.health()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if !good(leads) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_ = json.NewEncoder(w).Encode(h) // the client may have gone
		})
	}
	answer("/leader", func(leads bool) bool { return leads })
	answer("/readyz", func(bool) bool { return e.State() != Stopped })
	answer("/livez", func(bool) bool { return !e.stuck() })
	return mux
}
