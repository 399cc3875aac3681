package leaseserver

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

//go:embed openapi.json
var openAPI []byte

const paramLock = "lock"

func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = s.fail
	e.POST("/v1/locks/:lock/acquire", s.guard(Hold, s.acquire))
	e.POST("/v1/locks/:lock/renew", s.guard(Hold, s.renew))
	e.POST("/v1/locks/:lock/release", s.guard(Hold, s.release))
	e.POST("/v1/locks/:lock/adopt", s.guard(Hold, s.adopt))
	e.POST("/v1/batch", s.guard(Hold, s.batch))
	e.POST("/v1/locks/:lock/force-release", s.guard(Admin, s.forceRelease))
	for path, handler := range map[string]echo.HandlerFunc{
		"/v1/locks/:lock":  s.guard(Read, s.get),
		"/v1/locks":        s.guard(Read, s.list),
		"/v1/openapi.json": func(c echo.Context) error { return c.Blob(http.StatusOK, wire.JSONType, openAPI) },
		"/metrics":         s.guard(Metrics, echo.WrapHandler(promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))),
		"/healthz":         s.alive,
		"/readyz":          s.ready,
	} {
		e.GET(path, handler)
		e.HEAD(path, handler) // net/http leaves the body out
	}
	if s.forwarder != nil { // for servers, and so not in the document
		e.GET(activeRoute, s.isActive)
	}
	return e
}

// guard wraps every route that shows or changes locks; need is the right it requires.
func (s *Server) guard(need Right, next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = s.panicked(c.Request().Context(), r)
			}
		}()
		if id := c.Request().Header[wire.RequestID]; len(id) == 1 && len(id[0]) <= wire.MaxRequestID {
			c.Response().Header()[wire.RequestID] = id
		}
		from, err := s.hopOf(c.Request())
		if err != nil {
			return err
		}
		if from != nil {
			c.Set(hopKey, from)
		}
		proven := from != nil && from.proven
		if need != Metrics && !proven && !s.limiter.allow(c.Request().RemoteAddr) { // metrics stay readable when many requests are refused
			return wire.Refuse(wire.TypeRateLimited, "too many requests from this address")
		}
		if err := s.authorize(c, need); err != nil {
			return err
		}
		switch {
		case s.forwarder == nil || need == Metrics:
			return next(c)
		case from != nil:
			return s.forwardedHere(c, next)
		}
		return s.anywhere(c, next)
	}
}

// isActive answers servers that would forward requests here.
func (s *Server) isActive(c echo.Context) error {
	if challenge := c.Request().Header.Get(challengeHeader); challenge != "" {
		return s.prove(c, challenge)
	}
	from, err := s.hopOf(c.Request())
	if err != nil {
		return err
	}
	if from == nil {
		return refuseHop("this is for servers")
	}
	return s.forwardedHere(c, func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
}

// panicked returns the error for a request whose handling panicked.
func (s *Server) panicked(ctx context.Context, r any) error {
	s.Logger.LogAttrs(ctx, slog.LevelError, "handler_panicked", slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
	return wire.Refuse(wire.TypeInternal, "panic")
}

// fail answers with a problem.
func (s *Server) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch e.Code {
		case http.StatusNotFound:
			err = wire.Refuse(wire.TypeNoRoute, "see /v1/openapi.json")
		case http.StatusMethodNotAllowed:
			err = wire.Refuse(wire.TypeMethodNotAllowed, "see the Allow header")
		default:
			err = wire.Refuse(wire.TypeInternal, "")
		}
	}
	if errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
		err = wire.Refuse(wire.TypeInvalid, "the client ended its side of the connection before the answer, as one does that hangs up: keep both sides open until the answer came")
	}
	p := wire.ProblemOf(err)
	s.logFailure(c, p, err)
	if p.Type == wire.TypeUnauthorized {
		c.Response().Header().Set("Www-Authenticate", `Bearer realm="locks"`)
	}
	problem.Write(c.Response(), p.Status, wire.Milliseconds(p.RecommendedRetryMS), &p)
}

// logFailure logs a request that was neither carried out nor refused.
func (s *Server) logFailure(c echo.Context, p wire.Problem, err error) {
	if p.Status >= http.StatusInternalServerError && p.Type != wire.TypeBusy && c.Request().Context().Err() == nil {
		s.Logger.LogAttrs(c.Request().Context(), slog.LevelError, "request_failed", slog.String("path", c.Path()), slog.Any("error", err))
	}
}

// respond answers a request that was carried out.
func respond(c echo.Context, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h["Content-Type"] = jsonTypes
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	c.Response().WriteHeader(http.StatusOK)
	_, err = c.Response().Write(data)
	return err
}

var (
	jsonTypes = []string{wire.JSONType}
	noStore   = []string{"no-store"}
	noSniff   = []string{"nosniff"}
)
