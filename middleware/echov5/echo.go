package echov5

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Lock returns an Echo middleware that takes the lock on the path parameter "id".
// It panics on a nil Locker and on the zero Namespace.
func Lock(locker *advisory.Locker, ns namespace.Namespace) echo.MiddlewareFunc {
	return wrap(middleware.Must(middleware.Config{Locker: locker, Key: middleware.PathValue(ns, "id")}))
}

// New returns an Echo middleware. Config.Key receives a request whose path values are Echo's path
// parameters, without escapes. If the Config is not valid, New returns a *middleware.ConfigError.
// The middleware writes refusals instead of returning them: Echo's HTTPErrorHandler sees only the
// errors of the handler.
func New(c middleware.Config) (echo.MiddlewareFunc, error) {
	lock, err := middleware.New(c)
	if err != nil {
		return nil, err
	}
	return wrap(lock), nil
}

func wrap(lock func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(ec *echo.Context) (err error) {
			r, w := ec.Request(), ec.Response()
			defer func() { // for the outer middlewares: the context of the handler's request has ended
				ec.SetRequest(r)
				ec.SetResponse(w)
			}()
			cut := cutOut(ec)
			for _, p := range ec.PathValues() {
				value := p.Value
				if cut {
					value = middleware.Unescape(value)
				}
				r.SetPathValue(p.Name, value)
			}
			lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ec.SetRequest(r)
				ec.SetResponse(w)
				err = next(ec)
			})).ServeHTTP(w, r)
			return err
		}
	}
}

// cutOut reports whether the parameters are parts of the request's escaped path. The router does not
// expose its configuration. Without their escapes the parameters would be shorter, and would not fill
// the path.
func cutOut(ec *echo.Context) bool {
	escaped := ec.Request().URL.RawPath
	length := len(strings.ReplaceAll(ec.Path(), `\:`, ":"))
	for _, p := range ec.PathValues() {
		length += len(p.Value) - len(p.Name)
		if p.Name != "*" {
			length-- // the colon
		}
	}
	return escaped != "" && length == len(escaped)
}
