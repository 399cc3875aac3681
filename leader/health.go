package leader

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// Healthz returns an error if the node counts as leader although the last good
// renewal cannot be trusted any more, for longer than tolerance: then the loop that
// should have ended the leadership does not turn, and a restart is the remedy. It
// returns nil for a node that does not lead, and while a renewal is late within
// tolerance. It does no I/O. A process that was suspended for longer gets the error
// until its loop has run.
func (e *Elector) Healthz(tolerance time.Duration) error {
	t := e.current.Load()
	if t == nil {
		return nil
	}
	if over := t.overdue(); over > tolerance {
		return fmt.Errorf("leader: %s: still in office %v after leadership could be trusted", e.config.Name, over.Round(time.Millisecond))
	}
	return nil
}

// overdue is since when the last good renewal cannot be trusted; negative if it can.
func (t *tenure) overdue() time.Duration { return t.until.Load().Since() }

// minStuck is how long the lifecycle goroutine may be busy, at least, before it
// counts as stuck.
const minStuck = 10 * time.Second

// stuck reports whether the lifecycle goroutine has been busy for too long, with a
// callback or with the backend.
func (e *Elector) stuck() bool {
	since := e.busy.Load()
	return since != 0 && boottime.Now()-time.Duration(since) > max(minStuck, e.config.LeaseDuration)
}

// Health is the body of the answers of Handler.
type Health struct {
	State    string     `json:"state"`
	Name     string     `json:"name"`
	Identity string     `json:"identity"`
	Term     string     `json:"term,omitempty"`  // while it leads, if the backend counts
	Since    *time.Time `json:"since,omitempty"` // while it leads
}

// health tells about the node now, and whether it leads.
func (e *Elector) health() (h Health, leads bool) {
	h = Health{State: e.State().String(), Name: e.config.Name, Identity: e.config.Identity}
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
//	/livez   200; 503 when its loop has hung for LeaseDuration, and 10 s at least
//
// with a Health as JSON, never cached, without I/O. A liveness probe must not ask
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
