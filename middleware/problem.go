package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/namespace"
)

// The types of a Problem: identifiers to compare, not pages to fetch. A
// *RequestError and an extractor that failed have "about:blank", which says no
// more than the status.
const (
	TypeBusy        = "https://github.com/pglatch/pglatch/problems/lock-busy"
	TypePool        = "https://github.com/pglatch/pglatch/problems/lock-pool-exhausted"
	TypeUnavailable = "https://github.com/pglatch/pglatch/problems/lock-unavailable"
	TypeRefused     = "https://github.com/pglatch/pglatch/problems/lock-refused"
	TypeLost        = "https://github.com/pglatch/pglatch/problems/lock-lost"
	TypeMisuse      = "https://github.com/pglatch/pglatch/problems/lock-misuse"
	TypeNoEntity    = "https://github.com/pglatch/pglatch/problems/lock-no-entity"
	typeBlank       = "about:blank"
)

const titleNoEntity = "No entity to lock"

// A Problem is the answer to a request that was refused, in the terms of RFC 9457
// with extension members.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Instance  string `json:"instance,omitempty"`  // the path of the request
	Namespace string `json:"namespace,omitempty"` // of the key; empty if there is none
	Entity    string `json:"entity,omitempty"`    // of a raw key its text, as in "1:100"
	// RetryAfterMS is after how many milliseconds to try again. 0 = it does not help.
	RetryAfterMS int64   `json:"retry_after_ms,omitempty"`
	Holder       *Holder `json:"holder"` // nil unless Config.ShowHolder, and if not known

	// Err is what happened. It is not for clients.
	Err error `json:"-"`
}

// A Holder is who holds a busy lock; see advisory.Holder. Empty fields are not known.
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

// Respond writes the problem as application/problem+json, with a Retry-After
// header of whole seconds if trying again can help. Headers that described
// another body are removed.
func (p *Problem) Respond(w http.ResponseWriter) {
	problem.Write(w, p.Status, time.Duration(p.RetryAfterMS)*time.Millisecond, p)
}

// lockProblem is the table of answers to an acquisition that failed and to a lock
// that was lost. The order matters: a wait that ran out in the pool matches
// ErrTimeout too.
func (g *gate) lockProblem(err error) *Problem {
	is := func(target error) bool { return errors.Is(err, target) }
	unavailable := http.StatusServiceUnavailable
	switch {
	case is(namespace.ErrInvalidKey):
		return noEntity()
	case is(advisory.ErrLost):
		return &Problem{Type: TypeLost, Status: unavailable, Title: "Lock was lost", Detail: "The lock ended before the request did; its outcome is not known."}
	case is(advisory.ErrReentrant), is(advisory.ErrDeadlock):
		return &Problem{Type: TypeMisuse, Status: http.StatusInternalServerError, Title: "Lock cannot be taken", Detail: "The server asked for a lock that it could never get."}
	case is(advisory.ErrPoolExhausted):
		return &Problem{Type: TypePool, Status: unavailable, Title: "Too many locks", Detail: "The server holds as many locks as it can. The request was not processed."}
	case is(advisory.ErrRefused):
		return refused()
	case is(advisory.ErrUnavailable), is(advisory.ErrClosed), is(advisory.ErrLockTableFull):
		return notAvailable()
	case is(advisory.ErrHeld), is(advisory.ErrTimeout):
		return &Problem{Type: TypeBusy, Status: g.BusyStatus, Title: "Lock is held", Detail: "Another request or job works on the entity. The request was not processed."}
	}
	return notAvailable() // PostgreSQL's other errors, and contexts that the program ended
}

// keyProblem is the same for an extractor that failed.
func keyProblem(err error) *Problem {
	if e, ok := errors.AsType[*RequestError](err); ok && failure(e.Status) {
		return &Problem{Type: cmp.Or(e.Type, typeBlank), Status: e.Status, Title: e.title(), Detail: e.Detail}
	}
	if errors.Is(err, namespace.ErrInvalidKey) {
		return noEntity()
	}
	return &Problem{Type: typeBlank, Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError)}
}

func noEntity() *Problem {
	return &Problem{Type: TypeNoEntity, Status: http.StatusBadRequest, Title: titleNoEntity, Detail: "The request does not name a valid entity."}
}

func notAvailable() *Problem {
	return &Problem{Type: TypeUnavailable, Status: http.StatusServiceUnavailable, Title: "Lock is not available", Detail: "The lock could not be asked for. The request was not processed."}
}

// refused is no 503: nobody is to try again until somebody has mended the server's
// settings.
func refused() *Problem {
	return &Problem{
		Type: TypeRefused, Status: http.StatusInternalServerError, Title: "Locks are not set up",
		Detail: "The server may not use its lock database. The request was not processed, and trying again does not help.",
	}
}

// complete adds the facts of the request.
func (g *gate) complete(p *Problem, r *http.Request, key namespace.Key, err error) {
	p.Err = err
	p.Instance = r.URL.EscapedPath()
	if key.Valid() {
		p.Namespace, p.Entity = key.Namespace().Name(), key.Entity()
		if p.Entity == "" {
			p.Entity = key.String()
		}
	}
	if p.Type == TypeBusy || p.Status == http.StatusServiceUnavailable {
		p.RetryAfterMS = max(1, g.RetryAfter.Milliseconds())
	}
	if g.ShowHolder {
		p.Holder = holder(err)
	}
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
