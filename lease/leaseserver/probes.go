package leaseserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// aliveTimeout is less than a Kubernetes probe's default timeout of one second. A store that does
// not answer is not a reason to restart this process.
const aliveTimeout = 500 * time.Millisecond

// alive answers whether this process can be useful. It fails only if nothing but a restart helps.
func (s *Server) alive(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), aliveTimeout)
	defer cancel()
	if err := s.meter.healthy(ctx); errors.Is(err, lease.ErrBroken) {
		return fmt.Errorf("leaseserver: %w", err)
	}
	return noContent(w)
}

// ready answers whether requests should come here now. It asks the store for a lock that nobody
// has, and, if the store can tell, whether it can change leases.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.draining.Load() {
		return &lease.BusyError{Retry: time.Second, Cause: errClosing}
	}
	ctx := r.Context()
	if _, err := s.meter.get(ctx, "readyz"); err != nil && !errors.Is(err, lease.ErrNotFound) {
		return err
	}
	ctx, cancel := s.meter.bound(ctx)
	defer cancel()
	if err := s.meter.healthy(ctx); err != nil {
		return err
	}
	return noContent(w)
}

// healthy returns the store's own health report, nil if the store has none.
func (m *meter) healthy(ctx context.Context) error {
	if m.health == nil {
		return nil
	}
	return m.health.Health(ctx)
}
