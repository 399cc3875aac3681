package leaseserver

import (
	"context"
	"net/http"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// adopt returns its lease to a restarted holder.
func (s *Server) adopt(w http.ResponseWriter, r *http.Request) error {
	name, body, err := readLock[wire.AdoptBody](s, r)
	if err != nil {
		return err
	}
	l, err := measured(r.Context(), s.meter, opGet, func(ctx context.Context) (lease.Lease, error) {
		return lease.Adopt(ctx, s.Store, name, body.OwnerID, body.LeaseID)
	})
	return reply(w, wire.NewLeaseBody(l), err)
}
