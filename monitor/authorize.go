package monitor

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// An Action is what a request wants to do.
type Action string

// ActionView reads the list of locks.
const ActionView Action = "view"

var (
	errNotLocal  = errors.New("only this host may look: set Config.Authorize to let others in")
	errForwarded = errors.New("the request came through a proxy: set Config.Authorize to say who may look")
	errHost      = errors.New("the Host is not localhost, 127.0.0.1 or [::1]: set Config.Authorize to say who may look")
)

// LoopbackOnly is the default of Config.Authorize. It lets a request through when
// it comes from a loopback address, has no Forwarded, X-Forwarded-*, X-Real-IP or
// Via header, and asks for the host localhost, 127.0.0.1 or [::1]. So neither the
// clients of a proxy on this host nor a web page that rebinds its DNS name to
// 127.0.0.1 gets in. A proxy on this host that adds no header and rewrites the
// Host cannot be told from a local user: set Authorize behind such a one.
func LoopbackOnly(r *http.Request, _ Action) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return errNotLocal
	}
	for name := range r.Header {
		name = http.CanonicalHeaderKey(name)
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return errForwarded
		}
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	if !strings.EqualFold(host, "localhost") && host != "127.0.0.1" && host != "::1" {
		return errHost
	}
	return nil
}

// AllowAll is the Config.Authorize that lets every request through: for a handler
// that stands behind the program's own authentication.
func AllowAll(*http.Request, Action) error { return nil }
