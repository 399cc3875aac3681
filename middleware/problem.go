package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/namespace"
)

// The types of a ProblemError: identifiers to compare, not pages to fetch. A *RequestError, and an
// error from outside pglatch, have "about:blank", which adds nothing to the status.
const (
	TypeBusy        = problem.TypeBase + "lock-busy"
	TypePool        = problem.TypeBase + "lock-pool-exhausted"
	TypeUnavailable = problem.TypeBase + "lock-unavailable"
	TypeRefused     = problem.TypeBase + "lock-refused"
	TypeLost        = problem.TypeBase + "lock-lost"
	TypeMisuse      = problem.TypeBase + "lock-misuse"
	TypeNoEntity    = problem.TypeBase + "lock-no-entity"
	typeBlank       = "about:blank"
)

const titleNoEntity = "No entity to lock"

// The rows of the table. Their texts for clients reveal nothing about the server.
var (
	rowNoEntity = ProblemError{Type: TypeNoEntity, Status: http.StatusBadRequest, Title: titleNoEntity, Detail: "The request does not name a valid entity."}
	rowLost     = ProblemError{
		Type: TypeLost, Status: http.StatusServiceUnavailable, Title: "Lock was lost",
		Detail: "The lock ended before the request did; its outcome is not known.",
	}
	rowMisuse = ProblemError{Type: TypeMisuse, Status: http.StatusInternalServerError, Title: "Lock cannot be taken", Detail: "The server asked for a lock that it could never get."}
	rowPool   = ProblemError{
		Type: TypePool, Status: http.StatusServiceUnavailable, Title: "Too many locks",
		Detail: "The server holds as many locks as it can. The request was not processed.",
	}
	// No 503: a retry cannot succeed until the server's settings are repaired.
	rowRefused = ProblemError{
		Type: TypeRefused, Status: http.StatusInternalServerError, Title: "Locks are not set up",
		Detail: "The server may not use its lock database. The request was not processed, and trying again does not help.",
	}
	rowUnavailable = ProblemError{
		Type: TypeUnavailable, Status: http.StatusServiceUnavailable, Title: "Lock is not available",
		Detail: "The lock could not be asked for. The request was not processed.",
	}
	rowBusy = ProblemError{
		Type: TypeBusy, Status: DefaultBusyStatus, Title: "Lock is held",
		Detail: "Another request or job works on the entity. The request was not processed.",
	}
	rowInternal = ProblemError{Type: typeBlank, Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError)}
)

// table maps each error of pglatch to its answer. The order matters: a wait that timed out in the
// pool matches ErrTimeout too, and a loss matches its cause.
var table = [...]struct {
	answer ProblemError
	errs   []error
}{
	{rowNoEntity, []error{namespace.ErrInvalidKey, namespace.ErrInvalidNamespace, lease.ErrInvalid}},
	{rowLost, []error{advisory.ErrLost, driver.ErrLost, lease.ErrStale, lease.ErrExpired}},
	{rowMisuse, []error{advisory.ErrReentrant, advisory.ErrDeadlock, advisory.ErrReleased, advisory.ErrNoTransaction}},
	{rowPool, []error{advisory.ErrPoolExhausted}},
	{rowRefused, []error{advisory.ErrRefused, driver.ErrPermanent}},
	{rowUnavailable, []error{
		advisory.ErrUnavailable, advisory.ErrClosed, advisory.ErrLockTableFull, advisory.ErrStandby, advisory.ErrPooler, session.ErrUnsupported,
		driver.ErrConnection, driver.ErrNotLeader, driver.ErrReleased, driver.ErrPending,
		lease.ErrBusy, lease.ErrNotReady, lease.ErrClosed, lease.ErrBroken, lease.ErrNotFound,
	}},
	{rowBusy, []error{advisory.ErrHeld, advisory.ErrTimeout, lease.ErrHeld}},
	{rowUnavailable, []error{context.Canceled, context.DeadlineExceeded}},
}

// Problem returns the answer to a request that ended with err, an error of any package of pglatch:
// its status, headers and body.
//
//	errors, first match                                          status, type                  Retry-After
//	*RequestError                                                its own
//	namespace.ErrInvalidKey, lease.ErrInvalid                    400 TypeNoEntity
//	advisory.ErrLost, leader.ErrLost, lease.ErrStale, ErrExpired 503 TypeLost                  1 s
//	advisory.ErrReentrant, ErrDeadlock, ErrReleased              500 TypeMisuse
//	advisory.ErrPoolExhausted                                    503 TypePool                  1 s
//	advisory.ErrRefused, leader.ErrPermanent                     500 TypeRefused
//	advisory.ErrUnavailable, ErrClosed, ErrLockTableFull,
//	leader.ErrConnection, ErrNotLeader, lease.ErrBusy, …         503 TypeUnavailable           1 s
//	advisory.ErrHeld, ErrTimeout, lease.ErrHeld                  423 TypeBusy                  1 s
//	a context that ended                                         503 TypeUnavailable           1 s
//	anything else                                                500 "about:blank"
//
// A middleware applies its Config on top: BusyStatus, RetryAfter and, with ShowHolder, the holder
// of the lock. Clients see the text of err only if it is a *RequestError.
func Problem(err error) *ProblemError {
	p := keyed(err)
	if p == nil {
		p = find(err, rowInternal)
	}
	return p.retry(DefaultRetryAfter)
}

// lockProblem is Problem for a failed acquisition or a lost lock: any other error is PostgreSQL's.
func lockProblem(err error) *ProblemError { return find(err, rowUnavailable) }

// keyProblem is Problem for an extractor that failed: any other error is the extractor's own.
func keyProblem(err error) *ProblemError {
	if p := keyed(err); p != nil {
		return p
	}
	if errors.Is(err, namespace.ErrInvalidKey) {
		return rowNoEntity.of(err)
	}
	return rowInternal.of(err)
}

// keyed returns the answer that a *RequestError asks for, or nil if err is none.
func keyed(err error) *ProblemError {
	if e, ok := errors.AsType[*RequestError](err); ok && failure(e.Status) {
		return &ProblemError{Type: cmp.Or(e.Type, typeBlank), Status: e.Status, Title: e.title(), Detail: e.Detail, Err: err}
	}
	return nil
}

// find looks an error up in the table.
func find(err error, otherwise ProblemError) *ProblemError {
	for _, row := range table {
		if slices.ContainsFunc(row.errs, func(target error) bool { return errors.Is(err, target) }) {
			return row.answer.of(err)
		}
	}
	return otherwise.of(err)
}

func (p ProblemError) of(err error) *ProblemError {
	p.Err = err
	return &p
}

// retry sets the time until a retry, if a retry can help.
func (p *ProblemError) retry(after time.Duration) *ProblemError {
	if p.Type == TypeBusy || p.Status == http.StatusServiceUnavailable {
		p.RetryAfterMS = max(1, after.Milliseconds())
	}
	return p
}

// adjust applies the Config to a refusal.
func (g *Gate) adjust(p *ProblemError, key namespace.Key) *ProblemError {
	if key.Valid() {
		p.Namespace, p.Entity = key.Namespace().Name(), key.Entity()
		if p.Entity == "" {
			p.Entity = key.String()
		}
	}
	if p.Type == TypeBusy {
		p.Status = g.config.BusyStatus
	}
	if g.config.ShowHolder {
		p.Holder = holder(p.Err)
	}
	return p.retry(g.config.RetryAfter)
}
