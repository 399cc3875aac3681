package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/pglatch/pglatch/namespace"
)

// A KeyFunc finds the entity of a request, before any lock is taken. Its errors are answered as follows:
//
//   - A *RequestError answers the request.
//   - An error that matches namespace.ErrInvalidKey, and the zero Key, get 400.
//   - ErrNoLock lets the request pass.
//   - Any other error gets 500, and only the Logger receives it.
//
// A KeyFunc that reads the body must put it back: see BufferBody.
type KeyFunc func(r *http.Request) (namespace.Key, error)

// ErrNoLock is the error of a KeyFunc for a request that needs no lock: its handler runs without one.
var ErrNoLock = errors.New("middleware: the request needs no lock")

// PathValue finds the entity in a wildcard of the route, as in "/agents/{id}". A text that is an integer or a UUID
// names that entity; see namespace.Namespace.Text. An empty value gets 400. PathValue panics on the zero Namespace.
func PathValue(ns namespace.Namespace, name string) KeyFunc {
	entity := Entity(ns, name)
	return func(r *http.Request) (namespace.Key, error) { return entity(r.PathValue(name)) }
}

// Entity is PathValue for a router that keeps its parameters elsewhere. It returns a function that makes a key from
// the value of the parameter, as the handler sees it.
func Entity(ns namespace.Namespace, param string) func(value string) (namespace.Key, error) {
	if ns.Number() == 0 {
		panic("middleware: the zero Namespace has no keys: make one with namespace.New")
	}
	return func(value string) (namespace.Key, error) {
		if value == "" {
			return namespace.Key{}, &RequestError{
				Status: http.StatusBadRequest, Type: TypeNoEntity, Title: titleNoEntity,
				Detail: fmt.Sprintf("The path parameter %q is empty.", param),
			}
		}
		return ns.Text(value)
	}
}

// Unescape returns the text that a path parameter stands for. If its escapes are not valid, it returns the
// parameter itself. Use it for a router that takes parameters from the escaped path. Never call it on a value that
// the router has unescaped.
func Unescape(value string) string {
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// A RequestError is a KeyFunc's own answer to a request. Clients see its fields.
type RequestError struct {
	Status int    // 400 to 599; anything else is answered with 500
	Title  string // "" = the status's own text
	Detail string
	Type   string // an URI that names the kind of problem. "" = "about:blank"
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("middleware: %d %s: %s", e.Status, e.title(), e.Detail)
}

func (e *RequestError) title() string { return cmp.Or(e.Title, http.StatusText(e.Status)) }

// failure reports whether a status can refuse a request.
func failure(status int) bool { return status >= 400 && status <= 599 }
