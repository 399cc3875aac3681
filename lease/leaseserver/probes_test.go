package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A patient is a store that tells of its health.
type patient struct {
	lease.Store
	health func(context.Context) error
}

func (p patient) Health(ctx context.Context) error { return p.health(ctx) }

func TestProbesTellWhatTheStoreSaysOfItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what         string
		health       func(context.Context) error
		alive, ready int
	}{
		{"well", func(context.Context) error { return nil }, 204, 204},
		{"a full disk", func(context.Context) error { return &lease.BusyError{Cause: errors.New("full")} }, 204, 503},
		{"away", func(context.Context) error { return errors.New("away") }, 204, 503},
		{"broken", func(context.Context) error { return fmt.Errorf("fdatasync: %w", lease.ErrBroken) }, 503, 503},
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 204, 503},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			config := leaseserver.Config{Store: patient{leasetest.NewStore(), c.health}}
			if c.what == "silent" {
				config.StoreTimeout = 10 * aMoment
			}
			_, h := servetest.Serve(t, config)
			a := send(t, h, http.MethodGet, "/healthz", "")
			assert.Equal(t, c.alive, a.status, a.body)
			a = send(t, h, http.MethodGet, "/readyz", "")
			assert.Equal(t, c.ready, a.status, a.body)
			assert.NotContains(t, a.body, "fdatasync", "the log says it")
		})
	}
}
