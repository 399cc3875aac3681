package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// A gate lets requests through one at a time per key. The adapters for net/http
// and Echo differ in how they find the key and call the handler.
type gate struct {
	Config
	locker *advisory.Locker
}

func newGate(c Config) (*gate, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &gate{c, c.Locker.With(advisory.Options{Wait: c.Wait, Shared: c.Shared, Label: c.Label})}, nil
}

// wrap is the net/http adapter.
func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.passes(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		key, err := g.Key(r)
		outer, rec := record(w)
		g.serve(w, r, key, err, rec.wrote, func(r *http.Request) { next.ServeHTTP(outer, r) })
	})
}

// passes reports whether requests of a method need no lock (RFC 9110, section 9.2.1).
func (g *gate) passes(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !g.LockSafeMethods
	}
	return false
}

// serve runs next under the lock on key, or refuses the request. keyErr is the
// extractor's; wrote reports whether next has written an answer.
func (g *gate) serve(w http.ResponseWriter, r *http.Request, key namespace.Key, keyErr error, wrote func() bool, next func(*http.Request)) {
	if keyErr != nil {
		g.refuse(w, r, key, keyErr, keyProblem(keyErr))
		return
	}
	if !g.Skip {
		readAhead(r, g.ReadAhead)
	}
	start := time.Now()
	lock, err := g.acquire(r.Context(), key)
	waited := float64(time.Since(start)) / float64(time.Millisecond)
	w.Header().Add("Server-Timing", "lock;dur="+strconv.FormatFloat(waited, 'f', 1, 64))
	if err != nil {
		g.refuse(w, r, key, err, g.lockProblem(err))
		return
	}
	// For a handler that panics, or does not run.
	defer lock.Release() //nolint:errcheck // else it is the second one

	if r.Context().Err() != nil { // it ended just now
		err = context.Cause(r.Context())
		g.refuse(w, r, key, err, g.lockProblem(err))
		return
	}
	next(r.WithContext(lock.Context()))
	switch err := lock.Release(); {
	case err == nil:
	case wrote():
		g.Logger.LogAttrs(r.Context(), slog.LevelWarn, "lock lost after the answer was begun", slog.String("method", r.Method),
			slog.String("path", r.URL.EscapedPath()), slog.String("key", key.String()), slog.Any("error", err))
	default:
		g.refuse(w, r, key, err, g.lockProblem(err))
	}
}

func (g *gate) acquire(ctx context.Context, key namespace.Key) (*advisory.Lock, error) {
	if g.Skip {
		return g.locker.TryAcquire(ctx, key)
	}
	return g.locker.Acquire(ctx, key)
}

// refuse answers a request in the handler's place.
func (g *gate) refuse(w http.ResponseWriter, r *http.Request, key namespace.Key, err error, p *Problem) {
	ctx := r.Context()
	if gone(ctx) {
		leave(ctx)
		return
	}
	g.complete(p, r, key, err)
	level := slog.LevelDebug
	if p.Status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	g.Logger.LogAttrs(ctx, level, "request refused", slog.Int("status", p.Status), slog.String("method", r.Method),
		slog.String("path", p.Instance), slog.String("key", key.String()), slog.Any("error", err))
	g.ErrorHandler(w, r, p)
}

// gone reports whether the client has left. A context that the program ended says
// so by another cause, the loss of an outer lock among them.
func gone(ctx context.Context) bool {
	return context.Cause(ctx) == context.Canceled //nolint:errorlint // causes that match it, as a signal's does, are the program's
}

// leave writes nothing. A server would send an empty 200 after a plain return.
func leave(ctx context.Context) {
	if ctx.Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
}
