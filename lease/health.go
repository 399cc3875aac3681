package lease

import (
	"context"
	"errors"
)

// ErrBroken is matched by the error of a HealthReporter that only a new start of the
// program can mend.
var ErrBroken = errors.New("store is broken until it is opened again")

// A HealthReporter is a Store that knows whether it works, for the probes of
// whatever runs the program. lease/leaseserver asks it for /healthz and /readyz.
type HealthReporter interface {
	// Health returns nil if the store can change leases now, as far as it can find out
	// without changing one. An error that matches ErrBroken lasts until the store is opened
	// again; any other may go away by itself. It returns soon after ctx ends.
	Health(ctx context.Context) error
}
