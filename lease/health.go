package lease

import (
	"context"
	"errors"
)

// ErrBroken is in a HealthReporter's error if only a restart of the program can fix its cause.
var ErrBroken = errors.New("store is broken until it is opened again")

// A HealthReporter is a Store that knows whether it works, for health probes of the program.
// lease/leaseserver calls it for /healthz and /readyz.
type HealthReporter interface {
	// Health returns nil if the store can change leases now, as far as it can determine that
	// without changing one. An error that matches ErrBroken lasts until the store is opened
	// again; any other error may go away on its own. Health returns soon after ctx ends.
	Health(ctx context.Context) error
}
