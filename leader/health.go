package leader

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// overdue is since when the last good renewal cannot be trusted; negative if it can.
func (t *activeTerm) overdue() time.Duration { return t.until.Moment().Since() }

// minStuck is the least time after which an Elector that does not go on counts as stuck.
const minStuck = 10 * time.Second

// stuck reports whether the Elector hangs, and a restart of the process is the remedy: the
// lifecycle goroutine has been busy for too long, with a callback or with the backend, or the
// node counts as leader for long after the last good renewal could be trusted.
func (e *Elector) stuck() bool {
	tolerance := max(minStuck, e.config.LeaseDuration)
	if t := e.current.Load(); t != nil && t.overdue() > tolerance {
		return true
	}
	since := e.busy.Load()
	return since != 0 && boottime.Now()-time.Duration(since) > tolerance
}

// health is the body of the answers of Handler.
type health struct {
	State    string     `json:"state"`
	Name     string     `json:"name"`
	Identity string     `json:"identity"`
	Term     string     `json:"term,omitempty"`  // while it leads, if the backend counts
	Since    *time.Time `json:"since,omitempty"` // while it leads
}

// health describes the node now, and whether it leads.
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

// Handler answers GET and HEAD, for load balancers and orchestrators:
//
//	/leader  200 on the leader, 503 elsewhere: where to send what only it can do
//	/readyz  200, on followers too; 503 while the Elector is stopped
//	/livez   200; 503 when it hangs, in a callback or in the backend, for longer than LeaseDuration, and 10 s at least
//
// with JSON, never cached, without I/O: {"state": "leader", "name": …, "identity": …}, and on the
// leader "term", if its backend counts them, and "since". A liveness probe must not ask
// /leader: followers would be restarted for ever. Mount it below a prefix with
// http.StripPrefix.
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
			_ = json.NewEncoder(w).Encode(h) // if the client has gone, nobody reads this
		})
	}
	answer("/leader", func(leads bool) bool { return leads })
	answer("/readyz", func(bool) bool { return e.State() != Stopped })
	answer("/livez", func(bool) bool { return !e.stuck() })
	return mux
}
