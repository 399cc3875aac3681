package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/lease"
)

// The types of a Problem: identifiers to compare, not pages to fetch.
const (
	TypeHeld             = problem.TypeBase + "lock-held"
	TypeStale            = problem.TypeBase + "lease-stale"
	TypeExpired          = problem.TypeBase + "lease-expired"
	TypeNotFound         = problem.TypeBase + "lock-not-found"
	TypeInvalid          = problem.TypeBase + "invalid-request"
	TypeOutOfRange       = problem.TypeBase + "out-of-range"
	TypeTooLarge         = problem.TypeBase + "body-too-large"
	TypeMediaType        = problem.TypeBase + "unsupported-media-type"
	TypeNoRoute          = problem.TypeBase + "no-such-route"
	TypeMethodNotAllowed = problem.TypeBase + "method-not-allowed"
	TypeUnauthorized     = problem.TypeBase + "unauthorized"
	TypeForbidden        = problem.TypeBase + "forbidden"
	TypeRateLimited      = problem.TypeBase + "rate-limited"
	TypeBusy             = problem.TypeBase + "lock-busy-retry"
	TypeNotActive        = problem.TypeBase + "server-not-active"
	TypeNotReady         = problem.TypeBase + "store-not-ready"
	TypeUnavailable      = problem.TypeBase + "store-unavailable"
	TypeInternal         = problem.TypeBase + "internal"
)

// A Problem is the answer to a refused request: the terms of RFC 9457 with extension members.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Lock               string     `json:"lock,omitempty"`
	OwnerID            string     `json:"owner_id,omitempty"`             // the holder of the lock
	TTLRemainingMS     int64      `json:"ttl_remaining_ms,omitempty"`     // until the lock can be granted
	RecommendedRetryMS int64      `json:"recommended_retry_ms,omitempty"` // jittered
	ExpiresAt          *time.Time `json:"expires_at,omitempty"`           // when the lease expired
	Mismatch           []string   `json:"mismatch,omitempty"`             // fields of a stale claim
	Released           bool       `json:"released,omitempty"`             // the claim was right, and its lease released
	Field              string     `json:"field,omitempty"`                // that is invalid
	Value              string     `json:"value,omitempty"`
	Remedy             string     `json:"remedy,omitempty"`
}

// ProblemOf converts err for a client. Errors outside of the contract are not for clients.
func ProblemOf(err error) Problem {
	k := KindOf(err)
	p := Problem{Type: k.Type, Title: k.Title, Status: k.Status}
	if k.Sentinel != nil {
		p.Detail = err.Error()
	}
	if e, ok := errors.AsType[*lease.HeldError](err); ok {
		p.Lock, p.OwnerID, p.TTLRemainingMS, p.RecommendedRetryMS = e.Name, e.Holder, CeilMS(e.Remaining), CeilMS(e.Retry)
	}
	if e, ok := errors.AsType[*lease.StaleError](err); ok {
		p.Lock, p.Released, p.Mismatch = e.Name, e.Released, mismatch(e)
	}
	if e, ok := errors.AsType[*lease.ExpiredError](err); ok {
		p.Lock, p.ExpiresAt = e.Name, new(e.At.UTC())
	}
	if e, ok := errors.AsType[*lease.NotFoundError](err); ok {
		p.Lock = e.Name
	}
	if e, ok := errors.AsType[*lease.InvalidError](err); ok {
		p.Field, p.Value, p.Remedy = fieldName(e.Field), e.Value, e.Remedy
		p.Detail = fmt.Sprintf("%s is %s: %s", p.Field, e.Value, e.Remedy)
	}
	if e, ok := errors.AsType[*lease.BusyError](err); ok {
		p.RecommendedRetryMS = CeilMS(e.Retry)
		p.Detail = "The request was not carried out; send it again."
	}
	if p.Type == TypeNotReady { // the error's text may name hosts and roles
		p.Detail = "Nothing was done. The server's log says what its store lacks."
	}
	if p.RecommendedRetryMS == 0 && (p.Type == TypeHeld || p.Status == 429 || p.Status == 503) {
		p.RecommendedRetryMS = CeilMS(pause.AtMost(DefaultRetry))
	}
	return p
}

func mismatch(e *lease.StaleError) []string {
	var fields []string
	for _, f := range [...]struct {
		name  string
		wrong bool
	}{{fieldOwner, e.Holder}, {fieldID, e.ID}, {fieldToken, e.Token}} {
		if f.wrong {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// DefaultRetry is how long a client should wait at most before it asks again, if nothing else is
// known.
const DefaultRetry = 100 * time.Millisecond
