package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/pglatch/pglatch/lease"
)

// ErrDenied is leasehttp.ErrDenied.
var ErrDenied error = deniedError{}

type deniedError struct{}

func (deniedError) Error() string { return "lock server denies access" }

func (deniedError) Is(target error) bool { return target == lease.ErrNotReady }

// A Kind is one row of the table of errors. The server maps the sentinel to the status and the
// type, and the client maps the type to the error.
type Kind struct {
	Type     string
	Status   int
	Title    string
	Sentinel error
	// Read converts a problem to the client's error. nil = the outcome is unknown.
	Read func(p *Problem, name string) error
}

// kinds is the table. If a sentinel has several rows, the first is for errors of a Store, and the
// server selects the others by their type.
var kinds = [...]Kind{
	{TypeHeld, 409, "Lock is held", lease.ErrHeld, readHeld},
	{TypeStale, 409, "Claim is not the current one", lease.ErrStale, readStale},
	{TypeExpired, 409, "Lease expired", lease.ErrExpired, readExpired},
	{TypeNotFound, 404, "Nothing known of the lock", lease.ErrNotFound, readNotFound},
	{TypeBusy, 503, "Busy; nothing was done", lease.ErrBusy, readBusy},
	{TypeNotActive, 421, "Another server is active; nothing was done", lease.ErrBusy, readBusy},
	{TypeNotReady, 503, "Store is not ready; nothing was done", lease.ErrNotReady, readNotReady},
	{TypeNotReady, 503, "Store is closed; nothing was done", lease.ErrClosed, readNotReady},
	{TypeInvalid, 400, "Invalid request", lease.ErrInvalid, readInvalid},
	{TypeOutOfRange, 422, "Value out of range", lease.ErrInvalid, readInvalid},
	{TypeTooLarge, 413, "Body too large", lease.ErrInvalid, readInvalid},
	{TypeMediaType, 415, "Body is not JSON", lease.ErrInvalid, readInvalid},
	{TypeNoRoute, 404, "No such route", lease.ErrInvalid, readInvalid},
	{TypeMethodNotAllowed, 405, "Method not allowed", lease.ErrInvalid, readInvalid},
	{TypeUnauthorized, 401, "Bearer token required", ErrDenied, readDenied},
	{TypeForbidden, 403, "Forbidden", ErrDenied, readDenied},
	{TypeRateLimited, 429, "Too many requests", lease.ErrBusy, readBusy},
	{TypeInternal, 500, "Internal error", nil, nil},
	{TypeUnavailable, 503, "Store unavailable; outcome unknown", nil, nil},
}

// A refusal is an error with an explicit type. For an error without one, the first row of the table
// that it matches applies.
type refusal struct {
	typ string
	err error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Refuse returns an error of a type, for the client.
func Refuse(typ, detail string) error { return &refusal{typ, errors.New(detail)} }

// KindOf returns the row of the table for an error.
func KindOf(err error) Kind {
	if r, ok := errors.AsType[*refusal](err); ok {
		return KindOfType(r.typ)
	}
	if e, ok := errors.AsType[*lease.InvalidError](err); ok && fieldOf(e.Field).numeric {
		return KindOfType(TypeOutOfRange)
	}
	for _, k := range kinds {
		if k.Sentinel != nil && errors.Is(err, k.Sentinel) {
			return k
		}
	}
	return KindOfType(TypeUnavailable)
}

// KindOfType returns the row of the table for a problem type; the zero Kind if there is none.
func KindOfType(typ string) Kind {
	for _, k := range kinds {
		if k.Type == typ {
			return k
		}
	}
	return Kind{}
}

func readHeld(p *Problem, name string) error {
	return &lease.HeldError{Name: name, Holder: p.OwnerID, Remaining: Milliseconds(p.TTLRemainingMS), Retry: Milliseconds(p.RecommendedRetryMS)}
}

func readStale(p *Problem, name string) error {
	return &lease.StaleError{
		Name: name, Released: p.Released, Holder: slices.Contains(p.Mismatch, fieldOwner),
		ID: slices.Contains(p.Mismatch, fieldID), Token: slices.Contains(p.Mismatch, fieldToken),
	}
}

func readExpired(p *Problem, name string) error {
	e := &lease.ExpiredError{Name: name}
	if p.ExpiresAt != nil {
		e.At = *p.ExpiresAt
	}
	return e
}

func readNotFound(_ *Problem, name string) error { return &lease.NotFoundError{Name: name} }

func readInvalid(p *Problem, _ string) error {
	if p.Field == "" {
		return &lease.InvalidError{Field: "request", Value: strconv.Itoa(p.Status) + " " + p.Title, Remedy: p.Detail}
	}
	return &lease.InvalidError{Field: contractName(p.Field), Value: p.Value, Remedy: p.Remedy}
}

func readBusy(p *Problem, _ string) error {
	return &lease.BusyError{Retry: Milliseconds(p.RecommendedRetryMS), Cause: fmt.Errorf("lock server: %d %s", p.Status, p.Title)}
}

func readNotReady(p *Problem, _ string) error {
	return fmt.Errorf("leasehttp: %w: %d %s", lease.ErrNotReady, p.Status, p.Title)
}

func readDenied(p *Problem, _ string) error {
	return fmt.Errorf("leasehttp: %w: %d %s: %s", ErrDenied, p.Status, p.Title, p.Detail)
}
