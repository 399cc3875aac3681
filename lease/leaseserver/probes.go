package leaseserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/lease"
)

// aliveTimeout is less than the second that a Kubernetes probe waits by default: a
// store that does not answer is no reason to end this process.
const aliveTimeout = 500 * time.Millisecond

// alive is whether this process can be of use: it fails only if nothing but a new start
// helps.
func (s *Server) alive(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), aliveTimeout)
	defer cancel()
	if err := s.meter.healthy(ctx); errors.Is(err, lease.ErrBroken) {
		return fmt.Errorf("leaseserver: %w", err)
	}
	return c.NoContent(http.StatusNoContent)
}

// ready is whether requests should come here now: the store is asked for a lock that
// nobody has, and whether it can change leases, if it can tell.
func (s *Server) ready(c echo.Context) error {
	if s.draining.Load() {
		return &lease.BusyError{Retry: time.Second, Cause: errClosing}
	}
	ctx := c.Request().Context()
	if _, err := s.meter.get(ctx, "readyz"); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return err
	}
	ctx, cancel := s.meter.bound(ctx)
	defer cancel()
	if err := s.meter.healthy(ctx); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// healthy is what the store says of itself, nil if it says nothing.
func (m *meter) healthy(ctx context.Context) error {
	if m.health == nil {
		return nil
	}
	return m.health.Health(ctx)
}
