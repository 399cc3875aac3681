package leasehttp_test

import (
	"context"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A remote is a store behind a server. Sweeps are the server's business alone.
type remote struct {
	*leasehttp.Client
	behind lease.Store
}

func (r remote) Sweep(ctx context.Context, q lease.SweepRequest) (lease.SweepResult, error) {
	return r.behind.Sweep(ctx, q)
}

func TestAClientAndItsServerAreAStore(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, leasetest.Harness{
		Precision: time.Millisecond,
		TTL:       time.Second,
		New: func(t *testing.T) lease.Store {
			t.Helper()
			store := leasetest.NewStore()
			_, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: servetest.Token}}}) // or records would lack ids
			return remote{servetest.Client(t, h, leasehttp.ClientConfig{Token: servetest.Token}), store}
		},
	})
}
