package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/problem"
)

// A ProblemError is the answer to a refused request: a problem as in RFC 9457, with extension
// members. As an error, it wraps its cause.
type ProblemError struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Instance  string `json:"instance,omitempty"`  // the path of the request
	Namespace string `json:"namespace,omitempty"` // of the key; empty if there is none
	Entity    string `json:"entity,omitempty"`    // of a raw key, its text, as in "1:100"
	// RetryAfterMS is the number of milliseconds until a retry. 0 = a retry does not help.
	RetryAfterMS int64   `json:"retry_after_ms,omitempty"`
	Holder       *Holder `json:"holder"` // nil unless Config.ShowHolder is set and the holder is known

	// Err is the cause. Clients do not see it.
	Err error `json:"-"`
}

// A Holder identifies the holder of a busy lock; see advisory.Holder. Empty fields are unknown.
type Holder struct {
	Local           bool      `json:"local"` // this process
	PID             uint32    `json:"pid"`
	ApplicationName string    `json:"application_name"`
	ClientAddr      string    `json:"client_addr"`
	State           string    `json:"state"`
	Shared          bool      `json:"shared"`
	Since           time.Time `json:"since,omitzero"`
	SessionSince    time.Time `json:"session_since,omitzero"`
}

func (p *ProblemError) Error() string {
	return fmt.Sprintf("middleware: %d %s: %v", p.Status, p.Title, p.Err)
}

// Unwrap returns the cause.
func (p *ProblemError) Unwrap() error { return p.Err }

// Header returns the header of the answer: its type, a ban on caching and, if a retry can help,
// Retry-After in whole seconds, rounded up.
func (p *ProblemError) Header() http.Header { return problem.Header(p.retryAfter()) }

// Body returns the body of the answer, JSON of the media type application/problem+json.
func (p *ProblemError) Body() []byte {
	body, _ := json.Marshal(p) // numbers, texts and times
	return body
}

// Respond writes the answer. It removes headers that described another body.
func (p *ProblemError) Respond(w http.ResponseWriter) { problem.Write(w, p.Status, p.retryAfter(), p) }

func (p *ProblemError) retryAfter() time.Duration {
	return time.Duration(p.RetryAfterMS) * time.Millisecond
}

// holder returns the holder that a busy lock's error names.
func holder(err error) *Holder {
	var h *advisory.Holder
	if e, ok := errors.AsType[*advisory.HeldError](err); ok {
		h = e.Holder
	} else if e, ok := errors.AsType[*advisory.TimeoutError](err); ok {
		h = e.Holder
	}
	if h == nil {
		return nil
	}
	return &Holder{
		Local: h.Local, PID: h.PID, ApplicationName: h.ApplicationName, ClientAddr: h.ClientAddr,
		State: h.State, Shared: h.Shared, Since: h.Since, SessionSince: h.SessionSince,
	}
}
