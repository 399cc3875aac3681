package leaseserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A handler answers a request, or returns the error to answer it with.
type handler func(w http.ResponseWriter, r *http.Request) error

// answer makes an http.Handler of a handler: an error or a panic is answered with a problem.
func (s *Server) answer(next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.survive(r.Context(), func() error { return next(w, r) }); err != nil {
			s.fail(w, r, err)
		}
	})
}

// survive calls f. If f panics, survive logs that, and returns the error to answer with.
func (s *Server) survive(ctx context.Context, f func() error) error {
	err := background.Call(f, func(error) {})
	if p, ok := err.(*background.PanicError); ok { //nolint:errorlint // of this call, and not of one inside f
		s.Logger.LogAttrs(ctx, slog.LevelError, "handler_panicked", slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)))
		return wire.Refuse(wire.TypeInternal, "panic")
	}
	return err
}

// fail answers with a problem.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		err = wire.Refuse(wire.TypeInvalid, "the client ended its side of the connection before the answer, as one does that hangs up: keep both sides open until the answer came")
	}
	p := wire.ProblemOf(err)
	s.logFailure(r, p, err)
	if p.Type == wire.TypeUnauthorized {
		w.Header().Set("Www-Authenticate", `Bearer realm="locks"`)
	}
	problem.Write(w, p.Status, wire.Milliseconds(p.RecommendedRetryMS), &p)
}

// logFailure logs a request that was neither carried out nor refused.
func (s *Server) logFailure(r *http.Request, p wire.Problem, err error) {
	if p.Status >= http.StatusInternalServerError && p.Type != wire.TypeBusy && r.Context().Err() == nil {
		s.Logger.LogAttrs(r.Context(), slog.LevelError, "request_failed", slog.String("path", routePath(r)), slog.Any("error", err))
	}
}

// respond answers a request that was carried out.
func respond(w http.ResponseWriter, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = jsonTypes
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	_, _ = w.Write(data) // it fails only with the connection
	return nil
}

var (
	jsonTypes = []string{wire.JSONType}
	noStore   = []string{"no-store"}
	noSniff   = []string{"nosniff"}
)

// reply answers a request by what carried it out.
func reply[T any](w http.ResponseWriter, body T, err error) error {
	if err != nil {
		return err
	}
	return respond(w, &body)
}

// noContent answers a request that was carried out and has nothing to say.
func noContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}
