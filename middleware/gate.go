package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// A Gate admits requests one at a time per key. Every adapter is built on it: New is the adapter
// for net/http, and the packages below this one are adapters for other routers. A program needs a
// Gate only for a router without an adapter.
type Gate struct {
	config Config
	locker *advisory.Locker
}

// NewGate returns the gate of a Config, whose Key may be nil. If the Config is not valid, it
// returns a *ConfigError.
func NewGate(c Config) (*Gate, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Gate{c, c.Locker.With(advisory.Options{Wait: c.Wait, Shared: c.Shared, Label: c.Label})}, nil
}

// The handler inside a TimeoutHandler can run on after ServeHTTP has returned.
var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// wrap is the net/http adapter.
func (g *Gate) wrap(next http.Handler) http.Handler {
	if reflect.TypeOf(next) == timeoutHandler {
		panic("middleware: the lock is around an http.TimeoutHandler, which returns while its handler runs on, without the lock: " +
			"put it outside, as in http.TimeoutHandler(lock(handler), …)")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.Passes(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		outer, wrote := Record(w)
		g.Serve(w, r, g.config.Key, wrote, func(r *http.Request) { next.ServeHTTP(outer, r) })
	})
}

// Passes reports whether requests with this method need no lock (RFC 9110, section 9.2.1). The
// adapter calls it before Serve.
func (g *Gate) Passes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !g.config.LockSafeMethods
	}
	return false
}

// Serve runs next under the lock on the key that key finds, or else answers the request on w. next
// receives r with the context of the lock. wrote reports whether next has begun an answer, by
// bytes, a flush or a hijacking. Serve calls it after next has returned. If next panics, Serve
// releases the lock and the panic continues.
func (g *Gate) Serve(w http.ResponseWriter, r *http.Request, key KeyFunc, wrote func() bool, next func(*http.Request)) {
	k, err := key(r)
	if errors.Is(err, ErrNoLock) {
		next(r)
		return
	}
	if err == nil && !g.config.Skip {
		readAhead(r, g.config.ReadAhead)
	}
	ran := false
	p := g.run(r.Context(), k, err, func(waited time.Duration) {
		ms := float64(waited) / float64(time.Millisecond)
		w.Header().Add("Server-Timing", "lock;dur="+strconv.FormatFloat(ms, 'f', 1, 64))
	}, func(ctx context.Context) {
		ran = true
		next(r.WithContext(ctx))
	})
	switch {
	case p == nil:
	case ran && wrote():
		g.config.Logger.LogAttrs(r.Context(), slog.LevelWarn, "lock lost after the answer was begun", slog.String("method", r.Method),
			slog.String("path", r.URL.EscapedPath()), slog.String("key", k.String()), slog.Any("error", p.Err))
	default:
		g.refuse(w, r, k, p)
	}
}

// Do is Serve for calls that are not HTTP requests: it runs next under the lock on key. keyErr is
// the reason why there is no key, nil if there is one; see KeyFunc. Do returns a *ProblemError
// for a refusal, and for the loss of the lock, whatever next returned. Otherwise it returns
// next's error. If ctx was canceled before next ran, it returns ctx's error.
func (g *Gate) Do(ctx context.Context, key namespace.Key, keyErr error, next func(ctx context.Context) error) error {
	if errors.Is(keyErr, ErrNoLock) {
		return next(ctx)
	}
	var err error
	p := g.run(ctx, key, keyErr, func(time.Duration) {}, func(ctx context.Context) { err = next(ctx) })
	switch {
	case p == nil:
		return err
	case gone(ctx):
		return ctx.Err()
	}
	p.Err = errors.Join(p.Err, err)
	g.log(ctx, key, p)
	return p
}

// run runs next under the lock on key, or returns the refusal. It also reports the loss of the
// lock. told receives the time that the acquisition took, whether it succeeded or not.
func (g *Gate) run(ctx context.Context, key namespace.Key, keyErr error, told func(waited time.Duration), next func(context.Context)) *ProblemError {
	if keyErr != nil {
		return g.adjust(keyProblem(keyErr), key)
	}
	start := time.Now()
	lock, err := g.acquire(ctx, key)
	told(time.Since(start))
	if err != nil {
		return g.adjust(lockProblem(err), key)
	}
	// For a handler that panics or does not run.
	defer lock.Release() //nolint:errcheck // else it is the second one

	if ctx.Err() != nil { // it ended just now
		return g.adjust(lockProblem(context.Cause(ctx)), key)
	}
	next(lock.Context())
	if err := lock.Release(); err != nil {
		return g.adjust(lockProblem(err), key)
	}
	return nil
}

func (g *Gate) acquire(ctx context.Context, key namespace.Key) (*advisory.Lock, error) {
	if g.config.Skip {
		return g.locker.TryAcquire(ctx, key)
	}
	return g.locker.Acquire(ctx, key)
}

// refuse answers a request instead of the handler.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, key namespace.Key, p *ProblemError) {
	ctx := r.Context()
	if gone(ctx) {
		leave(ctx)
		return
	}
	p.Instance = r.URL.EscapedPath()
	g.log(ctx, key, p, slog.String("method", r.Method), slog.String("path", p.Instance))
	g.config.ErrorHandler(w, r, p)
}

func (g *Gate) log(ctx context.Context, key namespace.Key, p *ProblemError, request ...slog.Attr) {
	level := slog.LevelDebug
	if p.Status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	g.config.Logger.LogAttrs(ctx, level, "request refused",
		append(request, slog.Int("status", p.Status), slog.String("key", key.String()), slog.Any("error", p.Err))...)
}

// gone reports whether the client has left. A context that the program ended has another cause; the
// loss of an outer lock is one of these.
func gone(ctx context.Context) bool {
	return context.Cause(ctx) == context.Canceled //nolint:errorlint // causes that match it, as a signal's does, are the program's
}

// leave aborts without an answer. After a plain return, a server would send an empty 200.
func leave(ctx context.Context) {
	if ctx.Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}
