package echov4

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// A LockConfig is a middleware.Config for Echo v4. Fields of the same name mean the same. Locker
// and Key are required.
type LockConfig struct {
	// Skipper lets requests pass without a lock. nil = skip only the safe methods.
	Skipper echomw.Skipper

	// Key finds the entity of a request; see middleware.KeyFunc. It can store values in the context
	// for the handler.
	Key func(c echo.Context) (namespace.Key, error)

	Locker          *advisory.Locker
	Skip            bool
	Wait            time.Duration
	ReadAhead       int
	Shared          bool
	Label           string
	LockSafeMethods bool
	BusyStatus      int
	RetryAfter      time.Duration
	ShowHolder      bool
	ErrorHandler    func(w http.ResponseWriter, r *http.Request, p *middleware.ProblemError)
	Logger          *slog.Logger
}

// DefaultLockConfig is the config that Lock uses, with its Locker and Key added.
var DefaultLockConfig = LockConfig{
	Skipper:    echomw.DefaultSkipper,
	BusyStatus: middleware.DefaultBusyStatus,
	RetryAfter: middleware.DefaultRetryAfter,
}

// Lock returns an Echo middleware that takes the lock on the path parameter "id".
// It panics on a nil Locker and on the zero Namespace.
func Lock(locker *advisory.Locker, ns namespace.Namespace) echo.MiddlewareFunc {
	c := DefaultLockConfig
	c.Locker, c.Key = locker, Param(ns, "id")
	return LockWithConfig(c)
}

// LockWithConfig is ToMiddleware for the wiring of a program: it panics on a config that is not
// valid.
func LockWithConfig(c LockConfig) echo.MiddlewareFunc {
	m, err := c.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return m
}

// Param is middleware.PathValue for the path parameters of Echo. Echo leaves them escaped if the
// path itself contained escapes.
func Param(ns namespace.Namespace, name string) func(echo.Context) (namespace.Key, error) {
	entity := middleware.Entity(ns, name)
	return func(c echo.Context) (namespace.Key, error) {
		value := c.Param(name)
		if c.Request().URL.RawPath != "" { // Echo matches RawPath, if there is one
			value = middleware.Unescape(value)
		}
		return entity(value)
	}
}

// ToMiddleware returns the middleware. If the config is not valid, it returns a
// *middleware.ConfigError. The middleware writes refusals instead of returning them: Echo's
// HTTPErrorHandler sees only the errors of the handler.
func (c LockConfig) ToMiddleware() (echo.MiddlewareFunc, error) {
	if c.Key == nil {
		return nil, &middleware.ConfigError{Field: "Key", Value: "nil", Remedy: "set it, to Param for a path like /agents/:id"}
	}
	if c.Skipper == nil {
		c.Skipper = echomw.DefaultSkipper
	}
	g, err := middleware.NewGate(middleware.Config{
		Locker: c.Locker, Skip: c.Skip, Wait: c.Wait, ReadAhead: c.ReadAhead, Shared: c.Shared, Label: c.Label,
		LockSafeMethods: c.LockSafeMethods, BusyStatus: c.BusyStatus, RetryAfter: c.RetryAfter,
		ShowHolder: c.ShowHolder, ErrorHandler: c.ErrorHandler, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(ec echo.Context) error {
			if c.Skipper(ec) || g.Passes(ec.Request().Method) {
				return next(ec)
			}
			return c.serve(g, ec, next)
		}
	}, nil
}

// serve calls next with the Gate's request and writer. Afterwards it restores the context's own for
// the outer middlewares: the context of the handler's request has ended. Committed alone does not
// show a flush or a hijacking.
func (c LockConfig) serve(g *middleware.Gate, ec echo.Context, next echo.HandlerFunc) (err error) {
	r, w := ec.Request(), ec.Response()
	inner := w.Writer
	outer, wrote := middleware.Record(inner)
	w.Writer = outer
	defer func() {
		w.Writer = inner
		ec.SetRequest(r)
	}()
	key := func(*http.Request) (namespace.Key, error) { return c.Key(ec) }
	g.Serve(w, r, key, func() bool { return w.Committed || wrote() }, func(r *http.Request) {
		ec.SetRequest(r)
		err = next(ec)
	})
	return err
}
