package postgres

import (
	"context"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// Bind implements driver.Binder: it adds to the context of a shard's work what Guard and InTx need.
func (o *lockSession) Bind(ctx context.Context, g driver.Grant) context.Context {
	return ctx
}
