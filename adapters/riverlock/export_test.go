package riverlock

import (
	"context"

	"github.com/pglatch/pglatch/namespace"
)

// Wake is the statement that a job ends with.
func Wake(ctx context.Context, m *Middleware, key namespace.Key) (waiting int, err error) {
	return m.wake(ctx, key, 1)
}
