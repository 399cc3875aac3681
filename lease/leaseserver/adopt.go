package leaseserver

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// adopt returns its lease to a restarted holder.
func (s *Server) adopt(c echo.Context) error {
	name, err := lockName(c)
	if err != nil {
		return err
	}
	var body wire.AdoptBody
	if err := s.readBody(c.Request(), &body); err != nil {
		return err
	}
	l, err := measured(c.Request().Context(), s.meter, opGet, func(ctx context.Context) (lease.Lease, error) {
		return lease.Adopt(ctx, s.Store, name, body.OwnerID, body.LeaseID)
	})
	if err != nil {
		return err
	}
	answer := wire.NewLeaseBody(l)
	return respond(c, &answer)
}
