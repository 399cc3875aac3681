package monitor

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/pglatch/pglatch/internal/loopback"
)

// An Action is what a request wants to do.
type Action string

// ActionView reads the list of locks.
const ActionView Action = "view"

var errNotLocal = errors.New("only this host may look: set Config.Authorize to let others in")

// LoopbackOnly is the default of Config.Authorize. It lets a request through when
// it comes from a loopback address, has no header that proxies add, as Forwarded,
// X-Forwarded-*, X-Real-IP, Via, Cf-*, and asks for the host localhost, 127.0.0.1, [::1], or
// the loopback address at which it was accepted. So neither the
// clients of a proxy on this host nor a web page that rebinds its DNS name to
// 127.0.0.1 gets in. A proxy on this host that adds no header and rewrites the
// Host cannot be distinguished from a local user: set Authorize behind such a one.
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

// AllowAll is the Config.Authorize that lets every request through: for a handler
// that stands behind the program's own authentication.
func AllowAll(*http.Request, Action) error { return nil }
