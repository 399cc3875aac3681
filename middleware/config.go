package middleware

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
)

// The defaults of a Config.
const (
	DefaultBusyStatus = http.StatusLocked
	DefaultRetryAfter = time.Second
	DefaultReadAhead  = 64 << 10
)

// A Config sets which lock a request takes and how it waits for it. Locker and Key are required.
// For every other field the zero value is a good default.
type Config struct {
	// Locker takes the locks. Options in this Config replace those set with Locker.With.
	Locker *advisory.Locker

	// Key finds the entity of a request.
	Key KeyFunc

	// Skip answers a request at once if the lock is held, instead of waiting. The request still
	// waits for a connection of the lock pool.
	Skip bool

	// Wait bounds the wait for the lock. 0 = the Locker's Wait; advisory.NoTimeout = only the
	// request's context limits it; negative is an error. The deadline of the request's context
	// also bounds the wait.
	Wait time.Duration

	// ReadAhead is the maximum number of bytes of an HTTP/1.1 request's body that are read before
	// the request waits for the lock. The body is kept for the handler. The server detects that a
	// client has left only after the end of the body. Each waiting request keeps at most that much
	// memory. These bodies are not read ahead: a longer one, one of unknown length (chunked), and
	// one that the client holds back until 100 Continue. If the client of such a request has left,
	// the handler still runs, and detects that when it reads the body. 0 = 64 KiB; negative =
	// never.
	ReadAhead int

	// Shared takes the lock in shared mode: the lock then excludes only exclusive holders.
	Shared bool

	// Label describes the purpose of the lock for Locker.Held and tracers. "" = none.
	Label string

	// LockSafeMethods takes the lock for GET, HEAD, OPTIONS and TRACE too. Otherwise these
	// requests pass without the lock, and Key is not called.
	LockSafeMethods bool

	// BusyStatus answers a request whose lock is held. 0 = 423 Locked; 400 to 599.
	// 409 and 429 are usual alternatives; a 5xx makes many clients retry at once.
	BusyStatus int

	// RetryAfter is sent to clients that get the busy status or a 503. 0 = 1 s; negative is an
	// error. The Retry-After header rounds it up to whole seconds.
	RetryAfter time.Duration

	// ShowHolder shows clients the holder of a busy lock: process id, application name and address.
	// Leave it off for clients that are not trusted.
	ShowHolder bool

	// ErrorHandler answers a refused request instead of the middleware. It must not keep p. nil =
	// ProblemError's Respond.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, p *ProblemError)

	// Logger receives refused requests: status 500 and above at Warn, with the error that clients
	// do not see, others at Debug. nil = discard.
	Logger *slog.Logger
}

// A ConfigError names a field of a Config, its value and the remedy.
type ConfigError struct {
	Field  string
	Value  any
	Remedy string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("middleware: %s is %v: %s", e.Field, e.Value, e.Remedy)
}

// New returns a middleware for net/http. If the Config is not valid, it returns a *ConfigError. The
// middleware panics if it wraps an http.TimeoutHandler, which must stand outside: see the package
// documentation.
func New(c Config) (func(http.Handler) http.Handler, error) {
	if c.Key == nil {
		return nil, &ConfigError{"Key", "nil", "set it, to PathValue for a path like /agents/{id}"}
	}
	g, err := NewGate(c)
	if err != nil {
		return nil, err
	}
	return g.wrap, nil
}

// Must is New for the wiring of a program: it panics on a Config that is not valid.
func Must(c Config) func(http.Handler) http.Handler {
	m, err := New(c)
	if err != nil {
		panic(err)
	}
	return m
}

// withDefaults validates every field but Key, and fills the defaults.
func (c Config) withDefaults() (Config, error) {
	c.BusyStatus = cmp.Or(c.BusyStatus, DefaultBusyStatus)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.ReadAhead = cmp.Or(c.ReadAhead, DefaultReadAhead)
	c.Logger = background.Logger(c.Logger)
	if c.ErrorHandler == nil {
		c.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, p *ProblemError) { p.Respond(w) }
	}
	switch {
	case c.Locker == nil:
		return c, &ConfigError{"Locker", "nil", "set it to the result of advisory.Open"}
	case c.Wait < 0:
		return c, &ConfigError{"Wait", c.Wait, "use a positive duration, 0 for the Locker's Wait, or advisory.NoTimeout"}
	case !failure(c.BusyStatus):
		return c, &ConfigError{"BusyStatus", c.BusyStatus, "use 400 to 599, or 0 for 423"}
	case c.RetryAfter < 0:
		return c, &ConfigError{"RetryAfter", c.RetryAfter, "use a positive duration, or 0 for 1s"}
	}
	return c, nil
}
