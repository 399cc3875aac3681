package monitor

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/pglatch/pglatch/internal/loopback"
)

// An Action is the action that a request wants to perform.
type Action string

// ActionView reads the list of locks.
const ActionView Action = "view"

var errNotLocal = errors.New("only this host may look: set Config.Authorize to let others in")

// LoopbackOnly is the default of Config.Authorize. It admits a request that meets all these
// conditions:
//
//   - It comes from a loopback address.
//   - It has no header that proxies add, such as Forwarded, X-Forwarded-*, X-Real-IP, Via, Cf-*.
//   - Its host is localhost, 127.0.0.1, [::1], or the loopback address at which it was accepted.
//
// So it keeps out the clients of a proxy on this host, and a web page that rebinds its DNS name to
// 127.0.0.1. A proxy on this host that adds no header and rewrites the Host cannot be distinguished
// from a local user: set Authorize behind such a proxy.
func LoopbackOnly(r *http.Request, _ Action) error {
	switch err := loopback.Request(r); {
	case err == nil:
		return nil
	case errors.Is(err, loopback.ErrRemote):
		return errNotLocal
	default:
		return fmt.Errorf("%w: set Config.Authorize to say who may look", err)
	}
}

// AllowAll is a Config.Authorize that admits every request, for a handler behind the program's own
// authentication.
func AllowAll(*http.Request, Action) error { return nil }
