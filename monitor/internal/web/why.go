package web

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// why returns why a database or a lock server does not answer, for viewers: PostgreSQL's own message, or the network's, without
// addresses. The rest of an error may be for the program's log only.
func why(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return legible.Quote("PostgreSQL says: "+refused.Message, 4*nameShown)
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return "its host is not known: the name cannot be resolved"
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok && !failed.Timeout() {
		return legible.Quote("the network says: "+failed.Err.Error(), 4*nameShown)
	}
	if pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return "nothing came from it in time: it hangs, or the network between is cut"
	}
	if errors.Is(err, leasehttp.ErrDenied) {
		return "it refuses this monitor's token"
	}
	if errors.Is(err, lease.ErrNotReady) {
		return "its store is not ready"
	}
	return "the log of this monitor says why"
}
