package echov4

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// A LockConfig is a middleware.Config for Echo v4. Fields that it has too are as there.
// Locker and Key are required.
type LockConfig struct {
	// Skipper lets requests pass without a lock. nil = none but the safe methods.
	Skipper echomw.Skipper

	// Key finds the entity of a request; see middleware.KeyFunc. What it finds on the way
	// can be left to the handler in the context.
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

// DefaultLockConfig is what Lock adds the Locker and the Key to.
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

// LockWithConfig is ToMiddleware for the wiring of a program: it panics on a config
// that is not valid.
func LockWithConfig(c LockConfig) echo.MiddlewareFunc {
	m, err := c.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return m
}

// Param is middleware.PathValue for the path parameters of Echo, which leaves them
// escaped if the path came with escapes of its own.
func Param(ns namespace.Namespace, name string) func(echo.Context) (namespace.Key, error) {
	entity := middleware.Entity(ns, name)
	return func(c echo.Context) (namespace.Key, error) {
		value := c.Param(name)
		if c.Request().URL.RawPath != "" { // which is what Echo matches, if there is one
			value = middleware.Unescape(value)
		}
		return entity(value)
	}
}

// ToMiddleware returns the middleware. It fails on a config that is not valid, with
// an error that names the field. Refusals are written, not returned: Echo's
// HTTPErrorHandler sees the errors of the handler only.
func (c LockConfig) ToMiddleware() (echo.MiddlewareFunc, error) {
	if c.Key == nil {
		return nil, errors.New("middleware: Key is nil: set it, to Param for a path like /agents/:id")
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

// serve calls next with the request and the writer of the Gate, and gives the context
// back what it had, for the middlewares outside: the request of the handler has ended.
// Committed alone does not show a flush or a hijacking.
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
