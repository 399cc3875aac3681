package leasehttp

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/pglatch/pglatch/lease"
)

// ErrUnavailable means that no server accepted the request, or that a read-only request got
// no answer. Nothing was done.
var ErrUnavailable = errors.New("no lock server answers")

// An UnavailableError matches ErrUnavailable and lease.ErrBusy: the caller may retry the request.
type UnavailableError struct {
	Request string   // such as "acquire job"
	Servers []string // those to try
	Cause   error    // of the last sending
}

func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("leasehttp: %s: no lock server answers at %s: %v; nothing was done", e.Request, strings.Join(e.Servers, ", "), e.Cause)
	if wasNotSent(e.Cause) {
		text += "; start one: pglatch serve locks"
	}
	return text
}

// Unwrap returns Cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Is reports whether target is ErrUnavailable or lease.ErrBusy.
func (e *UnavailableError) Is(target error) bool {
	return target == ErrUnavailable || target == lease.ErrBusy
}

// wasNotSent reports whether there was no connection to send a request on.
func wasNotSent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}
